//! Fault plans as a scenario writes them, one `[[faults]]` table each.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::cue::{Cue, CueKind};
use super::span::Span;
use crate::registry::{self, BuildError};
use crate::target::Targets;

/// One `[[faults]]` table. What: `fault` (with `target`, `params`), or `mix`; more that holds
/// at the same time in `with`. When: `at`, or `calm`, or `on`. How long: `for`, `until`, `at_most`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Plan {
    /// Name in the registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    pub target: Targets,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
    /// Instead of `fault`: each time, one of these is drawn by weight.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mix: Vec<Choice>,
    /// Installed and healed together with the fault.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<Piece>,
    /// The lock that `holder`, `waiter` and `until` speak of, where no event names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<Arc<str>>,
    /// When the load has run this long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Span>,
    /// A cycle: this long without the fault, then `for` with it, again and again (first after
    /// `at`, if that is given too).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calm: Option<Span>,
    /// Each time that this happens (while the plan's last fault does not hold any more).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<On>,
    /// With `on`: this long after the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Span>,
    /// How long it holds; with `until`, how long at least. Without either: to the end of the load.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub hold: Option<Span>,
    /// It holds until this has happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Until>,
    /// With `until`: it holds no longer than this (default 30s).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<Span>,
    /// How often in all (default: once with `at` alone or with a point, else without limit).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
}

/// One fault of `with`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Piece {
    pub fault: String,
    pub target: Targets,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
}

/// One fault of `mix`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    pub fault: String,
    #[serde(default)]
    pub target: Targets,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
    /// Relative to the other weights (default 1).
    #[serde(default = "one")]
    pub weight: u32,
}

fn one() -> u32 {
    1
}

/// Which event triggers a fault. A filter that is absent lets everything pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct On {
    pub event: CueKind,
    /// Where the event is `point`: its name. A worker that has no such point
    /// triggers on its `grant` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Arc<str>>,
    /// Events that pass the filters but come before this time do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Span>,
    /// Let this many pass first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skip: u32,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl On {
    /// Whether worker and lock pass the filters.
    pub fn concerns(&self, worker: u32, lock: Option<&str>) -> bool {
        self.worker.is_none_or(|w| w == worker)
            && self.lock.as_deref().is_none_or(|l| Some(l) == lock)
    }

    pub(super) fn passes(&self, cue: &Cue) -> bool {
        self.concerns(cue.worker, cue.lock.as_deref())
            && self
                .owner
                .as_deref()
                .is_none_or(|o| Some(o) == cue.owner.as_deref())
    }
}

/// What ends a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Until {
    /// A worker that is not a target was granted the lock since the fault took hold.
    AnotherGrant,
    /// … and a write of that worker on that lock was acknowledged after it.
    AnotherWrite,
}

/// Why a plan makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("faults[{at}]: {text}")]
    Shape { at: usize, text: &'static str },
    #[error("faults[{at}]: {source}")]
    Fault { at: usize, source: BuildError },
}

impl Plan {
    /// All faults that this plan may install.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (&str, &Map<String, Value>)> {
        let own = self.fault.as_deref().map(|f| (f, &self.params));
        let mix = self.mix.iter().map(|c| (c.fault.as_str(), &c.params));
        let with = self.with.iter().map(|p| (p.fault.as_str(), &p.params));
        own.into_iter().chain(mix).chain(with)
    }

    /// Refuses combinations that mean nothing, unknown faults and wrong parameters.
    ///
    /// # Errors
    /// What is wrong with the plan; `at` is its place in the scenario, from 0.
    pub fn check(&self, at: usize) -> Result<(), PlanError> {
        let wrong = |text| Err(PlanError::Shape { at, text });
        if self.fault.is_some() != self.mix.is_empty() {
            return wrong("needs either `fault` or `mix`");
        }
        if !self.mix.is_empty() && (!self.target.0.is_empty() || !self.params.is_empty()) {
            return wrong("with `mix`, each choice carries its own `target` and `params`");
        }
        if self.mix.iter().map(|c| u64::from(c.weight)).sum::<u64>() == 0 && !self.mix.is_empty() {
            return wrong("every weight of `mix` is zero");
        }
        if self.on.is_some() && (self.at.is_some() || self.calm.is_some()) {
            return wrong("needs one of `on`, `at` and `calm`, not several (use on.not_before)");
        }
        if self.on.is_none() && self.at.is_none() && self.calm.is_none() {
            return wrong("needs a time: `at`, `calm` or `on`");
        }
        if self.after.is_some() && self.on.is_none() {
            return wrong("`after` needs `on`");
        }
        if self.calm.is_some() && self.hold.is_none() && self.until.is_none() {
            return wrong("a cycle (`calm`) needs `for` or `until`");
        }
        if self.at_most.is_some() && self.until.is_none() {
            return wrong("`at_most` needs `until`");
        }
        if let Some(on) = &self.on
            && (on.event == CueKind::Point) != on.point.is_some()
        {
            return wrong("`on.event = \"point\"` and `on.point` go together");
        }
        for (name, params) in self.pieces() {
            registry::build_fault(name, params)
                .map_err(|source| PlanError::Fault { at, source })?;
        }
        let empty = |t: &Targets| t.0.is_empty();
        if (self.fault.is_some() && empty(&self.target))
            || self.mix.iter().any(|c| empty(&c.target))
            || self.with.iter().any(|p| empty(&p.target))
        {
            return wrong("needs a `target`");
        }
        Ok(())
    }
}
