//! Scenario files: what to run, what to break, what must come out (docs/scenario.md).

mod builtin;
#[cfg(test)]
mod doc_tests;
mod error;
mod parse;
#[cfg(test)]
mod table_tests;

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_checker::verdict::Expected;
use fencepost_nemesis::schedule::{Plan, Span};
use serde::{Deserialize, Serialize};

pub use builtin::{builtin, builtins};
pub use error::ScenarioError;
pub use parse::{find, parse, validate};

/// A scenario as read, with every default filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    pub name: String,
    pub about: String,
    pub source: String,
    pub system: String,
    pub host: HostKind,
    pub workers: u32,
    pub clients: u32,
    pub mode: Mode,
    pub permits: u32,
    pub timeout: Span,
    pub lease: Lease,
    pub load: Load,
    pub store: Store,
    pub story: Story,
    pub params: serde_json::Map<String, serde_json::Value>,
    pub faults: Vec<Plan>,
    #[serde(alias = "fail-fast")]
    pub fail_fast: bool,
    #[serde(deserialize_with = "parse::expect")]
    pub expect: BTreeMap<String, Expected>,
    pub allow: Allow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostKind {
    Local,
    Docker,
}

/// How many holders a lock admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Exclusive,
    Shared,
    Semaphore,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lease {
    pub ttl: Span,
}

/// The background load: lock cycles at a fixed rate, whatever the service does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Load {
    pub rate: f64,
    pub locks: u32,
    pub workload: Workload,
    pub work: Span,
    pub wait: Span,
    pub duration: Span,
    pub calm: Span,
}

/// What a cycle does under its grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    Register,
    Set,
    Mixed,
    /// Acquire and release only.
    Lock,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    pub kind: String,
    pub fenced: bool,
    pub raise_on_read: bool,
    pub faulted: bool,
    pub params: serde_json::Map<String, serde_json::Value>,
}

/// Clients set aside to contend for one lock, so that a takeover surely happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Story {
    pub lock: String,
    pub rivals: u32,
    pub work: Span,
    pub wait: Span,
    pub pause: Span,
    pub again: bool,
}

/// Bounds that checks of liveness and coverage use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Allow {
    pub freed_factor: f64,
    pub recovery: Span,
    pub min_grants: u64,
}

impl HostKind {
    pub fn word(self) -> &'static str {
        match self {
            HostKind::Local => "local",
            HostKind::Docker => "docker",
        }
    }
}

impl Default for Scenario {
    fn default() -> Self {
        Scenario {
            name: String::new(),
            about: String::new(),
            source: String::new(),
            system: "raftlock".into(),
            host: HostKind::Local,
            workers: 3,
            clients: 4,
            mode: Mode::Exclusive,
            permits: 1,
            timeout: millis(2000),
            lease: Lease::default(),
            load: Load::default(),
            store: Store::default(),
            story: Story::default(),
            params: serde_json::Map::new(),
            faults: Vec::new(),
            fail_fast: false,
            expect: BTreeMap::new(),
            allow: Allow::default(),
        }
    }
}

impl Default for Lease {
    fn default() -> Self {
        Lease { ttl: millis(2000) }
    }
}

impl Default for Load {
    fn default() -> Self {
        Load {
            rate: 50.0,
            locks: 4,
            workload: Workload::Register,
            work: millis(5),
            wait: millis(500),
            duration: millis(10_000),
            calm: millis(2000),
        }
    }
}

impl Default for Store {
    fn default() -> Self {
        Store {
            kind: "witness".into(),
            fenced: true,
            raise_on_read: true,
            faulted: false,
            params: serde_json::Map::new(),
        }
    }
}

impl Default for Story {
    fn default() -> Self {
        Story {
            lock: String::new(),
            rivals: 1,
            work: millis(20),
            wait: Span::Ttl(3.0),
            pause: Span::Ttl(0.25),
            again: false,
        }
    }
}

impl Default for Allow {
    fn default() -> Self {
        Allow {
            freed_factor: 2.0,
            recovery: millis(10_000),
            min_grants: 10,
        }
    }
}

const fn millis(ms: u64) -> Span {
    Span::Fixed(Duration::from_millis(ms))
}

impl Scenario {
    pub fn ttl(&self) -> Duration {
        longest(&self.lease.ttl, Duration::from_secs(1))
    }

    /// Longest time that one call to the service may take.
    pub fn timeout(&self) -> Duration {
        longest(&self.timeout, self.ttl())
    }
}

/// The length of a span, or of its lower end.
pub fn shortest(span: &Span, ttl: Duration) -> Duration {
    match span {
        Span::Between(a, b) => shortest(a, ttl).min(shortest(b, ttl)),
        one => longest(one, ttl),
    }
}

/// The length of a span, or of its upper end.
pub fn longest(span: &Span, ttl: Duration) -> Duration {
    match span {
        Span::Fixed(d) => *d,
        Span::Ttl(x) => ttl.mul_f64(*x),
        Span::Between(a, b) => longest(a, ttl).max(longest(b, ttl)),
    }
}
