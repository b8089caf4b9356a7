//! What a check answers, and the file in which a run's answers are kept.

use serde::{Deserialize, Serialize};

/// Answer of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Holds,
    Violated,
    Unknown,
}

/// What a scenario expects of one check. `NotViolated` is the default for a
/// check that the scenario does not name: it may hold or be unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expected {
    Holds,
    Violated,
    Any,
    #[default]
    NotViolated,
}

/// One step of a story, in words, tied to the event that it rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub index: u64,
    /// Nanoseconds since the run began.
    pub time: i64,
    pub text: String,
}

/// Result of one check, as kept in `verdict.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckResult {
    pub verdict: Verdict,
    pub expected: Expected,
    /// One lower-case line.
    pub reason: String,
    /// Event indexes of the smallest evidence, ascending; empty unless violated.
    pub evidence: Vec<u64>,
    /// The evidence told in about six events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub story: Vec<Step>,
    /// How many findings there were in all.
    #[serde(default)]
    pub count: u64,
    /// How often the check's exercise condition was met.
    #[serde(default)]
    pub exercised: u64,
}
