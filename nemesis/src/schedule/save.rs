//! `schedule.jsonl`: the plans and every action, and the way back.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::engine::Action;
use super::plan::Plan;

/// One line of `schedule.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "lowercase", deny_unknown_fields)]
pub enum Line {
    /// The first line: all that the schedule depends on.
    Plans {
        format: u32,
        seed: u64,
        ttl_us: u64,
        plans: Vec<Plan>,
    },
    /// One action, at nanoseconds since the load began.
    Action {
        time: u64,
        plan: usize,
        nth: u32,
        action: Action,
    },
}

pub(super) const FORMAT: u32 = 1;

/// Why a saved schedule cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    #[error("schedule line {line}: {source}")]
    Json {
        line: usize,
        source: serde_json::Error,
    },
    #[error("schedule line 1 has no plans: not a schedule.jsonl")]
    NoPlans,
    #[error("schedule format {0} is not known here: this version reads format 1")]
    Format(u32),
    #[error(transparent)]
    Plan(#[from] super::plan::PlanError),
}

/// Reads a `schedule.jsonl`. A torn last line (the controller was killed) is left out.
///
/// # Errors
/// The first line that is no schedule line.
pub fn read_lines(text: &str) -> Result<Vec<Line>, SaveError> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .enumerate()
        .map(|(i, l)| {
            serde_json::from_str(l).map_err(|source| SaveError::Json {
                line: i + 1,
                source,
            })
        })
        .collect()
}

/// Installs of time-driven plans: `(plan, nth)` to the time at which they began.
pub(super) fn install_times(lines: &[Line]) -> BTreeMap<(usize, u32), Duration> {
    let mut times = BTreeMap::new();
    for line in lines {
        if let Line::Action {
            time,
            plan,
            nth,
            action: Action::Install { .. },
        } = line
        {
            times
                .entry((*plan, *nth))
                .or_insert(Duration::from_nanos(*time));
        }
    }
    times
}
