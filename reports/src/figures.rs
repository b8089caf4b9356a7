//! The run's rates and latencies: those that the controller measured from the
//! intended starts (`latency.json`), or else those that the history shows.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::load::Run;
use crate::scan::Scan;
use crate::scan::latency::percentile_ms;
use crate::words::rate;

/// Rates are per second over the load phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Whether latencies count from the intended start of each call.
    pub intended: bool,
    /// Length of the load phase in seconds.
    pub load_s: f64,
    /// Lock cycles a second that the scenario asked for.
    pub target_rate: Option<f64>,
    /// Lock cycles a second that came to their end; from a history alone, acquires sent.
    pub achieved_rate: f64,
    /// All answered operations a second.
    pub requests_per_s: f64,
    pub operations: BTreeMap<String, Operation>,
}

/// One operation; milliseconds of the calls that were timed, `None` without any.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operation {
    pub ok: u64,
    pub failed: u64,
    pub unknown: u64,
    pub p50_ms: Option<f64>,
    pub p90_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub p999_ms: Option<f64>,
    pub max_ms: Option<f64>,
}

impl Figures {
    /// A sentence when fewer than 99 % of the wanted cycles were reached.
    pub fn shortfall(&self) -> Option<String> {
        let target = self.target_rate.filter(|t| *t > 0.0)?;
        let share = self.achieved_rate / target;
        (share < 0.99 && self.achieved_rate > 0.0).then(|| {
            format!(
                "The load fell short: {} lock cycles/s of {} wanted ({:.1} %).",
                rate(self.achieved_rate),
                rate(target),
                share * 100.0
            )
        })
    }

    /// From the controller's `latency.json`; `None` when it is of another format.
    pub fn from_file(file: &Value) -> Option<Figures> {
        if file["format"] != 1 {
            return None;
        }
        let operations = file["ops"].as_object()?.iter().map(|(f, op)| {
            let n = |name: &str| op[name].as_u64().unwrap_or(0);
            let us = |name: &str| op["us"][name].as_f64().map(|us| us / 1_000.0);
            let operation = Operation {
                ok: n("ok"),
                failed: n("fail"),
                unknown: n("info"),
                p50_ms: us("p50"),
                p90_ms: us("p90"),
                p99_ms: us("p99"),
                p999_ms: us("p999"),
                max_ms: us("max"),
            };
            (f.clone(), operation)
        });
        Some(Figures {
            intended: true,
            load_s: file["load_s"].as_f64()?,
            target_rate: file["target_rate"].as_f64(),
            achieved_rate: file["achieved_rate"].as_f64()?,
            requests_per_s: file["requests_per_second"].as_f64()?,
            operations: operations.collect(),
        })
    }

    /// From what the history shows.
    pub fn from_scan(scan: &Scan, target_rate: Option<f64>) -> Figures {
        let (from, to) = scan.load_span();
        let load_s = (to - from) as f64 / 1e9;
        let per_s = |n: u64| if load_s > 0.0 { n as f64 / load_s } else { 0.0 };
        let series = &scan.latencies.series;
        let operations = series.iter().map(|(f, s)| {
            let p = |q| percentile_ms(&s.total.latency, q);
            let operation = Operation {
                ok: s.total.ok,
                failed: s.failed,
                unknown: s.unknown,
                p50_ms: p(50.0),
                p90_ms: p(90.0),
                p99_ms: p(99.0),
                p999_ms: p(99.9),
                max_ms: p(100.0),
            };
            (f.clone(), operation)
        });
        let answered = series.values().map(|s| s.total.ok + s.failed + s.unknown);
        let cycles = series.get("acquire").map_or(0, |s| s.total.invoked);
        Figures {
            intended: false,
            load_s,
            target_rate,
            achieved_rate: per_s(cycles),
            requests_per_s: per_s(answered.sum()),
            operations: operations.collect(),
        }
    }

    /// Operations in the order of a lock cycle, then by name.
    pub fn ordered(&self) -> Vec<(&str, &Operation)> {
        const FIRST: [&str; 7] = [
            "acquire", "read", "write", "add", "renew", "release", "cycle",
        ];
        let rank = |f: &str| FIRST.iter().position(|x| *x == f).unwrap_or(FIRST.len());
        let mut all: Vec<(&str, &Operation)> =
            self.operations.iter().map(|(f, o)| (&**f, o)).collect();
        all.sort_by_key(|(f, _)| (rank(f), *f));
        all
    }
}

impl Run {
    /// The controller's figures where `file` has them, else those of the history.
    pub fn figures_from(&self, file: Option<&Value>) -> Figures {
        let target = self.meta.number("target_rate");
        file.and_then(Figures::from_file)
            .unwrap_or_else(|| Figures::from_scan(&self.scan, target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_controllers_figures_win() {
        let file = json!({"format": 1, "target_rate": 50.0, "achieved_rate": 49.0, "requests_per_second": 196.0,
            "load_s": 10.0, "cycles": {"due": 500, "ended": 490, "busy": 0}, "requests": 1960,
            "ops": {"acquire": {"ok": 490, "fail": 0, "info": 1, "us": {"p50": 500, "p99": 2000, "max": 3000}}}});
        let figures = Run::default().figures_from(Some(&file));
        assert!(figures.intended);
        assert_eq!(figures.operations["acquire"].p50_ms, Some(0.5));
        assert_eq!(figures.operations["acquire"].p90_ms, None);
        assert!(
            figures
                .shortfall()
                .is_some_and(|s| s.contains("49 lock cycles/s of 50 wanted (98.0 %)"))
        );
        assert!(
            !Run::default()
                .figures_from(Some(&json!({"format": 2})))
                .intended
        );
    }
}
