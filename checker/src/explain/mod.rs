//! A violation, told so that a person can follow it and a program can check it.

use serde::Serialize;

/// Smallest evidence that was found for a violation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// What kind of evidence: `overlapping-holds`, `inverted-pair`, …
    pub class: &'static str,
    /// One lower-case line.
    pub summary: String,
    pub key: Option<String>,
    /// Event indexes that the evidence rests on, ascending.
    pub evidence: Vec<u64>,
    /// The evidence in words, one event a step, in order of index.
    pub story: Vec<StoryStep>,
    /// What the window must start from, where it does not start at the
    /// beginning: the states that the history before it allows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub start: Vec<String>,
    /// The history before this event index is linearizable.
    pub prefix: Option<u64>,
}

/// One event of a story.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoryStep {
    pub index: u64,
    pub text: String,
}
