//! What a check is asked and what it answers.

use std::time::Duration;

use crate::explain::Explanation;

/// Which engine decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// The near-linear checker where one fits the history, else the search.
    #[default]
    Auto,
    /// The near-linear checker only; unknown where none fits.
    Fast,
    /// The general search only.
    Search,
    /// Both; a disagreement is an error, for one of them is wrong.
    Both,
}

impl std::str::FromStr for Engine {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "auto" => Ok(Engine::Auto),
            "fast" => Ok(Engine::Fast),
            "search" => Ok(Engine::Search),
            "both" => Ok(Engine::Both),
            _ => Err(format!(
                "no engine named `{s}`: use auto, fast, search or both"
            )),
        }
    }
}

/// Bounds on a check. The default is no time limit, 4 GiB, no bound on states.
#[derive(Clone, Debug)]
pub struct Options {
    pub engine: Engine,
    /// Wall-clock limit, of which reading may take half. Leave it `None` where a verdict must repeat exactly.
    pub limit: Option<Duration>,
    /// Bytes that the search may hold at once.
    pub memory: u64,
    /// Bound on configurations explored per key: a limit that gives the same
    /// verdict on every machine.
    pub max_states: Option<u64>,
    /// Split a history by key before it is checked (locality: a history is
    /// linearizable iff its part at each object is).
    pub partition: bool,
    /// Whether a try that failed as `busy` is evidence that the lock was held.
    pub busy_counts: bool,
    /// Use every core.
    pub parallel: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            engine: Engine::Auto,
            limit: None,
            memory: 4 << 30,
            max_states: None,
            partition: true,
            busy_counts: true,
            parallel: true,
        }
    }
}

/// Answer of a check.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Linearizable,
    Violated(Box<Explanation>),
    Unknown(Spent),
}

/// Why there is no answer, what was spent on it, and how far it got.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Spent {
    /// One lower-case line.
    pub reason: String,
    /// Configurations explored.
    pub states: u64,
    pub millis: u64,
    /// Largest memory held by the search, in bytes, by its own account.
    pub bytes: u64,
    /// Key at which the search stopped.
    pub key: Option<String>,
    /// The history up to this event index is linearizable.
    pub prefix: Option<u64>,
}

/// Outcome of a check of events, with what a reader should know about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub outcome: Outcome,
    /// Model as named by the caller.
    pub model: String,
    /// Engine that decided: `fast`, `search`, `both` or `none`.
    pub decided_by: &'static str,
    pub operations: u64,
    /// Operations whose outcome is unknown.
    pub unknown: u64,
    pub keys: u64,
    /// Things that limit what the verdict says, one lower-case line each.
    pub notes: Vec<String>,
    pub millis: f64,
}

impl Report {
    /// Whether there was nothing to check: linearizable, but no reason to pass anything.
    pub fn is_vacuous(&self) -> bool {
        self.operations == 0
    }
}

/// Why a history could not be checked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CheckError {
    #[error("{place}: {what}", place = place(.line, .index))]
    Malformed {
        index: u64,
        /// Line of the file, where the events were read from one.
        line: Option<u64>,
        what: String,
    },
    /// Not returned by the checks: they answer `unknown`.
    #[error("half of the time limit passed while the history was being read")]
    Late,
    #[error("no model named `{0}`: use one of {names}", names = crate::kind::NAMES.join(", "))]
    UnknownModel(String),
    #[error(
        "model {model} does not fit: the history has no operation that it knows (it has: {seen})"
    )]
    DoesNotFit { model: String, seen: String },
    #[error("initial value {0} is not one that model {1} can start from")]
    BadInitial(String, String),
    #[error(
        "internal error: engines disagree about key {key}: fast says {fast}, search says {search}; please report this history"
    )]
    Disagreement {
        key: String,
        fast: String,
        search: String,
    },
}

fn place(line: &Option<u64>, index: &u64) -> String {
    match line {
        Some(line) => format!("line {line} (index {index})"),
        None => format!("malformed history at event index {index}"),
    }
}
