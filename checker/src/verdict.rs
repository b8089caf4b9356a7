//! What a check answers, and the file in which a run's answers are kept.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::exit;

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

/// How a run came out, over all its checks (docs/outcomes.md has the precedence).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    AsExpected,
    Violated,
    Malformed,
    HarnessFailure,
    Interrupted,
    FaultNotApplied,
    NotSeen,
    Unknown,
}

impl Outcome {
    pub fn exit_code(self) -> u8 {
        match self {
            Outcome::AsExpected => exit::OK,
            Outcome::Violated => exit::VIOLATED,
            Outcome::Malformed => exit::MALFORMED,
            Outcome::HarnessFailure => exit::HARNESS,
            Outcome::Interrupted => exit::INTERRUPTED,
            Outcome::FaultNotApplied => exit::NOT_APPLIED,
            Outcome::NotSeen => exit::NOT_SEEN,
            Outcome::Unknown => exit::UNKNOWN,
        }
    }
}

/// `verdict.json`. Rendered with sorted keys, so that judging again gives the same bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerdictFile {
    pub format: u32,
    pub outcome: Outcome,
    pub exit_code: u8,
    /// One lower-case line: what decided the outcome.
    pub reason: String,
    pub checks: BTreeMap<String, CheckResult>,
    /// What was odd about the input: torn lines, times that step back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Events judged.
    pub events: u64,
}

impl VerdictFile {
    /// The text of `verdict.json`, newline included.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self)
            .expect("invariant: a verdict has string keys and finite numbers only");
        text.push('\n');
        text
    }
}
