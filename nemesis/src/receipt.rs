//! What a fault may say of itself: never more than it proved.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The class of a fault, as `kind` in the history (docs/history-format.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Pause,
    Kill,
    Cut,
    Packets,
    Clock,
    Failover,
    Disk,
}

/// How an attempt to install or heal a fault came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The effect was seen on every target.
    Installed,
    /// The effect was seen to be gone.
    Healed,
    /// Nothing was attempted, for the reason given.
    Skipped,
    /// Attempted, and its effect (or its end) was not seen on every target.
    Indeterminate,
}

/// Why something cannot be done: one lower-case line with a hint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason(pub String);

impl Reason {
    pub fn new(text: impl Into<String>) -> Self {
        Reason(text.into())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Reason {
    fn from(e: E) -> Self {
        Reason(e.to_string())
    }
}

/// Proof of one install or heal.
///
/// `evidence` holds what was read back (states, probe results, offsets), per
/// target where there are several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    pub status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    #[serde(default)]
    pub evidence: Map<String, Value>,
}

impl Receipt {
    pub fn installed() -> Self {
        Self::with(Status::Installed, None)
    }

    pub fn healed() -> Self {
        Self::with(Status::Healed, None)
    }

    pub fn skipped(reason: impl Into<Reason>) -> Self {
        Self::with(Status::Skipped, Some(reason.into()))
    }

    pub fn indeterminate(reason: impl Into<Reason>) -> Self {
        Self::with(Status::Indeterminate, Some(reason.into()))
    }

    fn with(status: Status, reason: Option<Reason>) -> Self {
        Receipt {
            status,
            reason,
            evidence: Map::new(),
        }
    }

    /// Adds one piece of evidence.
    #[must_use]
    pub fn proof(mut self, name: impl Into<String>, value: impl Serialize) -> Self {
        self.evidence.insert(name.into(), json!(value));
        self
    }

    /// Replaces the evidence gathered so far.
    #[must_use]
    pub fn evidence(mut self, evidence: Map<String, Value>) -> Self {
        self.evidence = evidence;
        self
    }
}
