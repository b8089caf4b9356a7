//! The run's figures, as kept in `latency.json`.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::load::Run;
use crate::scan::latency::percentile_ms;
use crate::words::rate;

/// Rates and latencies of a run. Rates are per second over the load phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    pub format: u32,
    /// Length of the load phase in seconds.
    pub load_s: f64,
    /// Lock cycles a second that the scenario asked for.
    pub target_rate: Option<f64>,
    /// Acquires sent a second: one begins each lock cycle.
    pub achieved_rate: f64,
    pub grants_per_s: f64,
    /// All answered operations a second.
    pub requests_per_s: f64,
    pub operations: BTreeMap<String, Operation>,
}

/// One operation; milliseconds of the calls answered ok, null without any.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Operation {
    pub sent: u64,
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
    /// A sentence when fewer than 99 % of the wanted cycles were begun.
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
}

impl Run {
    pub fn figures(&self) -> Figures {
        let (from, to) = self.scan.load_span();
        let load_s = (to - from) as f64 / 1e9;
        let per_s = |n: u64| if load_s > 0.0 { n as f64 / load_s } else { 0.0 };
        let series = &self.scan.latencies.series;
        let acquires = series.get("acquire");
        let answered = series
            .values()
            .map(|s| s.total.ok + s.failed + s.unknown)
            .sum();
        let operations = series.iter().map(|(f, s)| {
            let p = |q| percentile_ms(&s.total.latency, q);
            let operation = Operation {
                sent: s.total.invoked,
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
        Figures {
            format: 1,
            load_s,
            target_rate: self.meta.number("target_rate"),
            achieved_rate: per_s(acquires.map_or(0, |s| s.total.invoked)),
            grants_per_s: per_s(acquires.map_or(0, |s| s.total.ok)),
            requests_per_s: per_s(answered),
            operations: operations.collect(),
        }
    }
}
