//! Rates and latencies of a run, in constant memory.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use fencepost_workloads::protocol::{Answer, OpName};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Operations whose latency is kept, and the whole cycle last.
const TIMED: [(&str, Option<OpName>); 7] = [
    ("acquire", Some(OpName::Acquire)),
    ("read", Some(OpName::Read)),
    ("write", Some(OpName::Write)),
    ("add", Some(OpName::Add)),
    ("release", Some(OpName::Release)),
    ("renew", Some(OpName::Renew)),
    ("cycle", None),
];

#[derive(Clone, Debug)]
pub struct Series {
    pub ok: u64,
    pub fail: u64,
    pub info: u64,
    /// Of those answered ok, in microseconds.
    pub latency: Histogram<u64>,
}

/// What a run's load came to.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Cycles that the schedule wanted so far.
    pub due: u64,
    /// Cycles of the load that ended, and those of them that found the lock busy.
    pub ended: u64,
    pub busy: u64,
    /// Every operation asked, stories included.
    pub requests: u64,
    /// Nanoseconds from the load's beginning to its end.
    pub load_ns: i64,
    series: Vec<Series>,
}

impl Default for Figures {
    fn default() -> Self {
        // Three digits from 1 µs to an hour: 200 kB in all.
        let histogram =
            || Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("invariant: valid bounds");
        let series = || Series {
            ok: 0,
            fail: 0,
            info: 0,
            latency: histogram(),
        };
        Figures {
            due: 0,
            ended: 0,
            busy: 0,
            requests: 0,
            load_ns: 0,
            series: TIMED.map(|_| series()).into(),
        }
    }
}

impl Figures {
    fn of(&mut self, op: Option<OpName>) -> Option<&mut Series> {
        let at = TIMED.iter().position(|(_, o)| *o == op)?;
        self.series.get_mut(at)
    }

    /// Counts an answer; `ns` runs from the intended start.
    pub fn answered(&mut self, op: OpName, answer: &Answer, ns: i64) {
        let Some(s) = self.of(Some(op)) else { return };
        match answer {
            Answer::Fail(_) => s.fail += 1,
            Answer::Info(_) => s.info += 1,
            _ => {
                s.ok += 1;
                s.latency.saturating_record(micros(ns));
            }
        }
    }

    /// Counts a cycle that ran through, from its intended start.
    pub fn cycled(&mut self, ns: i64) {
        if let Some(s) = self.of(None) {
            s.ok += 1;
            s.latency.saturating_record(micros(ns));
        }
    }

    /// Name and figures of everything that was timed.
    pub fn timed(&self) -> impl Iterator<Item = (&'static str, &Series)> {
        TIMED
            .iter()
            .map(|(n, _)| *n)
            .zip(&self.series)
            .filter(|(_, s)| s.ok + s.fail + s.info > 0)
    }

    /// Cycles a second that ended.
    pub fn achieved(&self) -> f64 {
        per_second(self.ended, self.load_ns)
    }

    pub fn requests_per_second(&self) -> f64 {
        per_second(self.requests, self.load_ns)
    }

    /// `latency.json`: counts, and latencies in microseconds from the intended start.
    pub fn to_json(&self, target_rate: f64) -> Value {
        let ops = self.timed().map(|(name, s)| {
            let q = |p: f64| s.latency.value_at_quantile(p);
            let row = json!({
                "ok": s.ok, "fail": s.fail, "info": s.info,
                "us": {"p50": q(0.5), "p90": q(0.9), "p99": q(0.99), "p999": q(0.999), "max": s.latency.max(),
                       "mean": s.latency.mean().round()},
            });
            (name.to_owned(), row)
        });
        json!({
            "format": 1, "target_rate": target_rate, "achieved_rate": round(self.achieved()),
            "requests_per_second": round(self.requests_per_second()), "load_s": round(self.load_ns as f64 / 1e9),
            "cycles": {"due": self.due, "ended": self.ended, "busy": self.busy}, "requests": self.requests,
            "ops": serde_json::Map::from_iter(ops),
        })
    }
}

fn micros(ns: i64) -> u64 {
    u64::try_from(ns / 1000).unwrap_or(0).max(1)
}

fn per_second(n: u64, ns: i64) -> f64 {
    if ns <= 0 {
        0.0
    } else {
        n as f64 * 1e9 / ns as f64
    }
}

fn round(x: f64) -> f64 {
    (x * 1000.0).round() / 1000.0
}

/// What a progress bar shows while the core runs.
#[derive(Debug, Default)]
pub struct Progress {
    pub cycles: AtomicU64,
    pub requests: AtomicU64,
    pub elapsed_ms: AtomicU64,
    pub phase: AtomicU8,
    /// What happened last: a fault, a point.
    pub note: Mutex<String>,
}

impl Progress {
    pub fn set_note(&self, text: String) {
        if let Ok(mut note) = self.note.lock() {
            *note = text;
        }
    }

    pub fn set(&self, figures: &Figures, phase: u8, elapsed_ns: i64) {
        self.cycles.store(figures.ended, Ordering::Relaxed);
        self.requests.store(figures.requests, Ordering::Relaxed);
        self.elapsed_ms.store(
            u64::try_from(elapsed_ns / 1_000_000).unwrap_or(0),
            Ordering::Relaxed,
        );
        self.phase.store(phase, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_count_what_ended() {
        let mut f = Figures {
            due: 100,
            ended: 50,
            load_ns: 2_000_000_000,
            ..Figures::default()
        };
        f.answered(OpName::Acquire, &Answer::Done, 2_500_000);
        f.answered(OpName::Acquire, &Answer::Fail("busy".into()), 1);
        f.answered(OpName::Ping, &Answer::Done, 1);
        assert_eq!(f.achieved(), 25.0);
        let json = f.to_json(50.0);
        assert_eq!(json["ops"]["acquire"]["fail"], 1);
        let p50 = json["ops"]["acquire"]["us"]["p50"].as_u64().unwrap_or(0);
        assert!((2498..=2502).contains(&p50), "{p50}");
        assert!(json["ops"].get("write").is_none());
    }
}
