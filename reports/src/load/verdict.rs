//! `verdict.json`: what the checks answered and what was expected of them.

use fencepost_checker::verdict::{CheckResult, Expected, Verdict};
use serde_json::Value;

/// Checks whose findings tell most, in that order.
const NEAREST: [&str; 7] = [
    "stale-fence-accepted",
    "lost-update",
    "double-holder.service",
    "double-holder.client",
    "lease-overrun",
    "double-holder.limit",
    "fence-monotonic",
];

/// The answers of a run.
#[derive(Clone, Debug, Default)]
pub struct Verdicts {
    /// One word from docs/outcomes.md.
    pub outcome: String,
    pub exit_code: Option<i64>,
    /// What decided the outcome.
    pub reason: String,
    /// Worst first: unexpected, then violated, unknown, holds; then by name.
    pub checks: Vec<Check>,
}

#[derive(Clone, Debug)]
pub struct Check {
    pub name: String,
    pub result: CheckResult,
}

impl Check {
    /// Whether the answer is one that the scenario allows.
    pub fn as_expected(&self) -> bool {
        match (self.result.expected, self.result.verdict) {
            (Expected::Any, _) => true,
            (Expected::NotViolated, verdict) => verdict != Verdict::Violated,
            (Expected::Holds, verdict) => verdict == Verdict::Holds,
            (Expected::Violated, verdict) => verdict == Verdict::Violated,
        }
    }

    fn rank(&self) -> u8 {
        match (self.as_expected(), self.result.verdict) {
            (false, Verdict::Violated) => 0,
            (false, _) => 1,
            (true, Verdict::Violated) => 2,
            (true, Verdict::Unknown) => 3,
            (true, Verdict::Holds) => 4,
        }
    }
}

impl Verdicts {
    /// The answers in `file`, and the names of checks that could not be read.
    pub fn from_json(file: &Value) -> (Verdicts, Vec<String>) {
        let mut unreadable = Vec::new();
        let mut checks = Vec::new();
        for (name, value) in file["checks"].as_object().into_iter().flatten() {
            match serde_json::from_value(value.clone()) {
                Ok(result) => checks.push(Check {
                    name: name.clone(),
                    result,
                }),
                Err(_) => unreadable.push(name.clone()),
            }
        }
        checks.sort_by(|a, b| (a.rank(), &a.name).cmp(&(b.rank(), &b.name)));
        let verdicts = Verdicts {
            outcome: file["outcome"].as_str().unwrap_or("unknown").to_string(),
            exit_code: file["exit_code"].as_i64(),
            reason: file["reason"].as_str().unwrap_or("").to_string(),
            checks,
        };
        (verdicts, unreadable)
    }

    /// The check whose story the report tells first: the worst that has one, and
    /// of equals the one nearest to the harm done.
    pub fn told(&self) -> Option<&Check> {
        self.violated().next()
    }

    /// Violated checks that can be told, the most telling first.
    pub fn violated(&self) -> impl Iterator<Item = &Check> {
        let near = |name: &str| {
            let at = NEAREST.iter().position(|n| *n == name);
            at.unwrap_or(NEAREST.len())
        };
        let mut told: Vec<&Check> = self
            .checks
            .iter()
            .filter(|c| {
                c.result.verdict == Verdict::Violated
                    && (!c.result.story.is_empty() || !c.result.evidence.is_empty())
            })
            .collect();
        told.sort_by_key(|c| (c.rank(), c.result.story.is_empty(), near(&c.name)));
        told.into_iter()
    }
}

pub fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::Violated => "violated",
        Verdict::Unknown => "unknown",
    }
}

pub fn expected_word(expected: Expected) -> &'static str {
    match expected {
        Expected::Holds => "holds",
        Expected::Violated => "violated",
        Expected::Any => "any",
        Expected::NotViolated => "not violated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(verdict: &str, expected: &str) -> Value {
        json!({"verdict": verdict, "expected": expected, "reason": "r", "evidence": [1]})
    }

    #[test]
    fn worst_first_and_bad_entries_are_named() {
        let file = json!({"outcome": "x", "exit_code": 1, "checks": {
            "a-holds": check("holds", "holds"),
            "b-expected": check("violated", "violated"),
            "c-bad": {"verdict": 3},
            "d-unmet": check("unknown", "holds"),
            "e-unexpected": check("violated", "not-violated"),
        }});
        let (verdicts, bad) = Verdicts::from_json(&file);
        let names: Vec<&str> = verdicts.checks.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["e-unexpected", "d-unmet", "b-expected", "a-holds"]);
        assert_eq!(bad, ["c-bad"]);
        assert_eq!(
            verdicts.told().map(|c| c.name.as_str()),
            Some("e-unexpected")
        );
    }
}
