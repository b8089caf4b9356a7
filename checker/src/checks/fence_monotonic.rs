//! Fences rise: violated when one grant was ok before another of the same name was asked for, and
//! the other's fence is not above; or when two different owners got one fence.
//!
//! Two acquires that overlap may be answered in either order.

use std::sync::Arc;

use hashbrown::HashMap;

use super::finding::{Findings, holds_if, plural};
use super::track::{F, Grant, KeyId, Mode, Tracker, What};
use super::{Check, Cx, Entry, Finding, Results};
use crate::judge::facts::Facts;

pub const ENTRY: Entry = Entry {
    name: "fence-monotonic",
    about: "a later grant has no higher fence, or two owners got one fence",
    new: |_| Box::new(FenceMonotonic::default()),
    live: Some(|_| Box::new(FenceMonotonic::default())),
};

/// Entries of one generation of recent fences; two are kept.
const RECENT: usize = 1 << 15;

type Recent = HashMap<(KeyId, u64), Arc<Grant>, foldhash::fast::FixedState>;

#[derive(Default)]
struct FenceMonotonic {
    findings: Findings,
    /// The grant with the highest fence, a key.
    top: HashMap<KeyId, Arc<Grant>, foldhash::fast::FixedState>,
    /// For each process with an open acquire, the top when it was invoked.
    floor: HashMap<u64, Arc<Grant>, foldhash::fast::FixedState>,
    young: Recent,
    old: Recent,
    ordered: u64,
    fences: u64,
}

impl FenceMonotonic {
    fn granted(&mut self, b: &Grant) {
        let floor = self.floor.remove(&b.process);
        let Some(fence) = b.fence else { return };
        self.fences += 1;
        let b = Arc::new(b.clone());
        if let Some(a) = floor
            && let Some(low) = a.fence
        {
            self.ordered += 1;
            let again = a.same_owner(&b) && fence == low;
            if fence <= low && !again {
                self.findings.add(story(&a, &b, "is not above"));
            }
        }
        let slot = (b.key, fence);
        let twin = self.young.get(&slot).or_else(|| self.old.get(&slot));
        if let Some(a) = twin
            && !a.same_owner(&b)
            && !(a.mode == Mode::Shared && b.mode == Mode::Shared)
        {
            self.findings.add(story(a, &b, "is again"));
        }
        if self.young.len() >= RECENT {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(slot, b.clone());
        let top = self.top.entry(b.key).or_insert_with(|| b.clone());
        if top.fence < b.fence {
            *top = b;
        }
    }
}

fn story(a: &Grant, b: &Grant, how: &str) -> Finding {
    let (x, y) = (a.fence.unwrap_or(0), b.fence.unwrap_or(0));
    Finding::new(format!(
        "fence {y} of {}, granted to {}, {how} fence {x}, granted to {}",
        b.name,
        b.who(),
        a.who()
    ))
    .granted(a)
    .tell(b.acquire, format!("{} asks for {}", b.who(), b.name))
    .granted(b)
}

impl Check for FenceMonotonic {
    fn event(&mut self, cx: &Cx<'_>) {
        match &cx.seen.what {
            What::Invoked(p) => {
                if let Some(op) = cx.track.open(*p)
                    && op.f == F::Acquire
                    && let Some(top) = self.top.get(&op.key)
                {
                    self.floor.insert(*p, top.clone());
                }
            }
            What::Done(op, _) if op.f == F::Acquire => {
                match cx.seen.granted.and_then(|id| cx.track.grant(id)) {
                    Some(b) => self.granted(b),
                    None => drop(self.floor.remove(&op.process)),
                }
            }
            _ => {}
        }
    }

    fn certain(&self) -> u64 {
        self.findings.count
    }

    fn tell(&self, _: &Tracker) -> Vec<(&'static str, Finding)> {
        self.findings.told(ENTRY.name)
    }

    fn finish(self: Box<Self>, facts: &Facts, _: &Tracker, out: &mut Results) {
        let unmet = match (self.fences, facts.system.fence) {
            (0, false) => "the locks have no fence",
            (0, true) => "no grant had a fence",
            _ => "no two grants of one name, one after the other",
        };
        let why = format!("{} in order", plural(self.ordered, "fence"));
        let otherwise = holds_if(self.ordered, why, unmet);
        out.insert(
            ENTRY.name.into(),
            self.findings.conclude(self.ordered, otherwise),
        );
    }
}
