//! A run's verdict, by the checks that judge the harness's runs.

use std::collections::BTreeMap;

use fencepost_checker::checks::Lineup;
use fencepost_checker::judge::facts::Facts;
use fencepost_checker::verdict::Verdict;
use fencepost_history::Event;
use serde_json::json;

use super::Shape;
use super::session::TTL_MS;

/// What a run showed, if nothing was wrong.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Events of the history.
    pub events: u64,
    /// How often each check had something to look at.
    pub exercised: BTreeMap<String, u64>,
}

impl Summary {
    /// Adds another run's.
    pub fn add(&mut self, other: &Summary) {
        self.events += other.events;
        for (check, count) in &other.exercised {
            *self.exercised.entry(check.clone()).or_default() += count;
        }
    }
}

/// What raftlock promises; docs/history-format.md has the words.
fn facts(shape: &Shape) -> Facts {
    let text = json!({
        "format": 1,
        "name": "simulation",
        "system": {
            "name": "raftlock", "lease": true, "fence": true, "fifo": true, "shared": true, "reentrant": false,
            "granularity_ms": 1, "lock_delay_ms": shape.lock_delay.as_millis() as u64,
        },
        "lease": { "ttl_ms": TTL_MS },
        "mode": shape.mode,
        "permits": shape.permits,
        "allow": { "freed_factor": 2.0, "recovery_ms": 4000, "min_grants": 1 },
    });
    Facts::parse(&text.to_string()).unwrap_or_default()
}

/// The first promise that was broken, or what was looked at.
pub fn judge(shape: &Shape, events: &[Event], broken: &[String]) -> Result<Summary, String> {
    if let Some(broken) = broken.first() {
        return Err(broken.clone());
    }
    let mut lineup = Lineup::new(&facts(shape));
    events.iter().for_each(|event| lineup.event(event));
    let mut summary = Summary {
        events: events.len() as u64,
        exercised: BTreeMap::new(),
    };
    for (name, result) in lineup.finish() {
        // No lease can prevent what a paused or cut off client does past its end; only the service is judged.
        let limit = matches!(name.as_str(), "double-holder" | "double-holder.limit");
        if result.verdict == Verdict::Violated && !limit {
            let story: Vec<String> = result
                .story
                .iter()
                .map(|step| {
                    format!(
                        "\n    {} at {} ms: {}",
                        step.index,
                        step.time / 1_000_000,
                        step.text
                    )
                })
                .collect();
            return Err(format!("{name}: {}{}", result.reason, story.concat()));
        }
        summary.exercised.insert(name, result.exercised);
    }
    Ok(summary)
}
