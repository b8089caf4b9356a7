//! What `run.json` says that verdicts rest on.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::JudgeError;
use crate::checks::track::nanos;
use crate::verdict::Expected;

/// The part of `run.json` that is judged by (docs/history-format.md). What a file
/// lacks has the value that claims least.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Facts {
    pub format: u32,
    pub name: String,
    pub system: System,
    pub store: Store,
    pub lease: Lease,
    pub mode: Option<String>,
    pub permits: Option<u64>,
    pub workload: Option<String>,
    pub expect: BTreeMap<String, Expected>,
    pub allow: Allow,
    pub faults_planned: u64,
    /// Servers whose processes the run watched.
    pub nodes: Option<u64>,
    pub status: Status,
    pub failure: Option<String>,
}

/// What the lock service promises.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct System {
    pub name: String,
    pub lease: bool,
    pub fence: bool,
    pub fifo: bool,
    pub shared: bool,
    pub reentrant: bool,
    pub granularity_ms: f64,
    pub lock_delay_ms: f64,
    pub ends_with_connection: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Store {
    pub kind: String,
    pub fenced: bool,
    pub raise_on_read: bool,
    /// A fault of the scenario is aimed at the store itself: its log proves nothing.
    pub faulted: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Lease {
    pub ttl_ms: Option<f64>,
}

/// How much a scenario allows before a liveness check is violated.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct Allow {
    pub freed_factor: f64,
    pub recovery_ms: f64,
    pub min_grants: u64,
}

impl Default for Allow {
    fn default() -> Self {
        Allow {
            freed_factor: 2.0,
            recovery_ms: 10_000.0,
            min_grants: 1,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Still running, or killed: nobody was left to say otherwise.
    Running,
    #[default]
    Complete,
    Interrupted,
    Failed,
}

impl Facts {
    /// # Errors
    /// When the text is no JSON or a field has the wrong type.
    pub fn parse(text: &str) -> Result<Facts, JudgeError> {
        let bad = |e: serde_json::Error| JudgeError::Facts(e.to_string());
        let mut json: serde_json::Value = serde_json::from_str(text).map_err(bad)?;
        drop_nulls(&mut json);
        let facts: Facts = serde_json::from_value(json).map_err(bad)?;
        if facts.format > 1 {
            return Err(JudgeError::Facts(format!(
                "format {} is newer than this program knows; use the version that wrote it",
                facts.format
            )));
        }
        Ok(facts)
    }

    /// Part of a lease that is not counted on, in nanoseconds: 1 % of the TTL + 5 ms + the
    /// server's granularity.
    pub fn margin(&self, ttl_ns: i64) -> i64 {
        ttl_ns / 100 + 5_000_000 + nanos(self.system.granularity_ms)
    }
}

/// A null says as little as an absent field.
fn drop_nulls(json: &mut serde_json::Value) {
    if let Some(object) = json.as_object_mut() {
        object.retain(|_, v| !v.is_null());
        object.values_mut().for_each(drop_nulls);
    }
}

/// Reads `run.json` of a folder.
///
/// # Errors
/// When it is missing, unreadable or malformed.
pub fn read(folder: &Path) -> Result<Facts, JudgeError> {
    let text =
        std::fs::read_to_string(folder.join("run.json")).map_err(|source| JudgeError::Read {
            file: "run.json".to_owned(),
            source,
        })?;
    Facts::parse(&text)
}
