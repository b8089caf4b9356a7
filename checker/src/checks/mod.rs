//! Lock-safety checks: one file each, and one line in [`CHECKS`].
//!
//! All of them stream: [`Lineup`] takes a run's events one by one; [`crate::judge::Live`] does so during
//! the run. What each check means is in its file; the words are those of docs/outcomes.md and the design.

mod available;
mod coverage;
mod crossing;
mod double_holder;
mod fair;
mod fence_monotonic;
mod finding;
mod freed_in_time;
mod herd;
mod lease_overrun;
mod linearizable;
mod lineup;
mod lost_update;
mod order;
mod owner_only;
mod servers;
mod stale_fence;
mod store_op;
pub mod track;
mod unheld_write;

use std::collections::BTreeMap;

use fencepost_history::Event;

pub use coverage::applied;
pub use finding::{Finding, Findings, unknown};
pub use lineup::Lineup;
pub use store_op::StoreOp;
use track::{Seen, Tracker};

use crate::judge::facts::Facts;
use crate::verdict::CheckResult;

/// What a check sees at an event.
pub struct Cx<'a> {
    pub facts: &'a Facts,
    /// The state after this event.
    pub track: &'a Tracker,
    pub event: &'a Event,
    pub seen: &'a Seen,
}

/// Results by name: a check has one or several entries in `verdict.json`.
pub type Results = BTreeMap<String, CheckResult>;

/// One check.
pub trait Check: Send {
    /// The next event.
    fn event(&mut self, cx: &Cx<'_>);

    /// What it answers at the end.
    fn finish(self: Box<Self>, facts: &Facts, track: &Tracker, out: &mut Results);

    /// The next line of the store's log, before the first event (or, during a run, whenever it comes).
    fn store(&mut self, _: &StoreOp) {}

    /// The next line of the store's log, after the last event.
    fn store_again(&mut self, _: &Tracker, _: &StoreOp) {}

    /// How many violations are certain already: those that no later event takes back.
    fn certain(&self) -> u64 {
        0
    }

    /// The plainest of them, by the name of its entry in `verdict.json`.
    fn tell(&self, _: &Tracker) -> Vec<(&'static str, Finding)> {
        Vec::new()
    }
}

/// Begins a check.
type New = fn(&Facts) -> Box<dyn Check>;

/// A check by its name, and how it begins.
pub struct Entry {
    pub name: &'static str,
    /// One line for `fencepost list`.
    pub about: &'static str,
    pub new: New,
    /// The same during a run, in memory that is bounded by what is open; `None` where nothing is certain
    /// before the end.
    pub live: Option<New>,
}

/// Every check.
pub const CHECKS: &[Entry] = &[
    double_holder::ENTRY,
    lease_overrun::ENTRY,
    stale_fence::ENTRY,
    fence_monotonic::ENTRY,
    lost_update::ENTRY,
    unheld_write::ENTRY,
    owner_only::ENTRY,
    linearizable::ENTRY,
    freed_in_time::ENTRY,
    fair::ENTRY,
    herd::ENTRY,
    available::ENTRY,
    servers::ENTRY,
    coverage::ENTRY,
];
