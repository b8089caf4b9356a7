//! The story that the report tells, put together from those of the checks.

use std::collections::BTreeMap;

use fencepost_checker::verdict::{Step, Verdict};
use fencepost_history::Event;

use super::events::line_of;
use super::verdict::{Check, Verdicts};
use crate::words::clip;

/// Steps that are told; a check's own story has about six.
const MAX_STEPS: usize = 10;
const MAX_TEXT: usize = 400;

/// What happened, in the order of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tale {
    /// The checks whose stories it tells, the most telling one first.
    pub checks: Vec<String>,
    pub steps: Vec<Step>,
    /// Evidence of the first of the checks.
    pub evidence: Vec<u64>,
}

impl Tale {
    /// The story of the most telling violation, with the steps that other violations
    /// add to it: the same harm seen by several checks is one story. `event` gives
    /// the events that are known, for a check with evidence but no story.
    pub fn tell<'a>(verdicts: &Verdicts, event: impl Fn(u64) -> Option<&'a Event>) -> Option<Tale> {
        let told = verdicts.told()?;
        let mut checks = vec![told.name.clone()];
        let mut steps: BTreeMap<u64, Step> = BTreeMap::new();
        for step in told.result.story.iter().take(MAX_STEPS) {
            steps.insert(step.index, step.clone());
        }
        let times = steps.values().map(|s| s.time);
        let span = times.clone().min().zip(times.max());
        if let Some((from, to)) = span {
            for other in verdicts
                .violated()
                .filter(|c| shares(c, &told.result.story))
            {
                let before = steps.len();
                for step in &other.result.story {
                    if (from..=to).contains(&step.time) && steps.len() < MAX_STEPS {
                        steps.entry(step.index).or_insert_with(|| step.clone());
                    }
                }
                if steps.len() > before {
                    checks.push(other.name.clone());
                }
            }
        } else {
            let known = told
                .result
                .evidence
                .iter()
                .filter_map(|index| event(*index));
            for event in known.take(MAX_STEPS) {
                let text = line_of(event);
                steps.insert(
                    event.index,
                    Step {
                        index: event.index,
                        time: event.time,
                        text,
                    },
                );
            }
        }
        let mut steps: Vec<Step> = steps.into_values().collect();
        steps.sort_by_key(|s| (s.time, s.index));
        for step in &mut steps {
            step.text = clip(&step.text, MAX_TEXT);
        }
        Some(Tale {
            checks,
            steps,
            evidence: told.result.evidence.clone(),
        })
    }
}

fn shares(check: &Check, story: &[Step]) -> bool {
    let ours = check.result.story.iter();
    check.result.verdict == Verdict::Violated
        && ours
            .filter(|s| story.iter().any(|t| t.index == s.index))
            .count()
            > 1
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn check(story: &[(u64, i64, &str)], evidence: &[u64]) -> Value {
        let story: Vec<Value> = story
            .iter()
            .map(|(index, time, text)| json!({"index": index, "time": time, "text": text}))
            .collect();
        json!({"verdict": "violated", "expected": "violated", "reason": "r", "evidence": evidence, "story": story})
    }

    fn tell(checks: Value) -> Tale {
        let (verdicts, bad) =
            Verdicts::from_json(&json!({"outcome": "as-expected", "checks": checks}));
        assert!(bad.is_empty());
        Tale::tell(&verdicts, |_| None).unwrap()
    }

    #[test]
    fn one_harm_seen_by_several_checks_is_one_story() {
        let tale = tell(json!({
            "stale-fence-accepted": check(&[(1, 10, "grant"), (5, 50, "grant"), (9, 90, "stale")], &[1, 9]),
            "lease-overrun": check(&[(1, 10, "other words"), (3, 70, "expiry"), (5, 50, "grant"), (20, 200, "after")], &[1]),
            "lost-update": check(&[(5, 50, "grant"), (6, 60, "elsewhere")], &[5]),
        }));
        let told: Vec<(u64, &str)> = tale
            .steps
            .iter()
            .map(|s| (s.index, s.text.as_str()))
            .collect();
        assert_eq!(
            told,
            [(1, "grant"), (5, "grant"), (3, "expiry"), (9, "stale")]
        );
        assert_eq!(tale.checks, ["stale-fence-accepted", "lease-overrun"]);
        assert_eq!(tale.evidence, [1, 9]);
    }
}
