//! Holds that may still change, found by owner; those long over are let go.

use std::collections::{BTreeMap, HashMap};

use super::{End, Hold, Who};

/// Holds followed at once; the oldest go first.
const MAX: usize = 4_000;
/// A claim or a late write may follow the end of a lease this long after it, in ns.
const GRACE: i64 = 120_000_000_000;
/// The same after a release.
const SHORT: i64 = 2_000_000_000;

#[derive(Default)]
pub struct Live {
    holds: BTreeMap<u64, Hold>,
    by_owner: HashMap<String, Vec<u64>>,
    next: u64,
    prune_at: usize,
}

impl Live {
    /// Adds a hold and gives those that are over by its grant, or one too many.
    pub fn push(&mut self, hold: Hold) -> Vec<Hold> {
        let now = hold.granted.time;
        let ids = self.by_owner.entry(hold.owner.clone()).or_default();
        ids.push(self.next);
        self.holds.insert(self.next, hold);
        self.next += 1;
        let mut gone = Vec::new();
        if self.holds.len() > self.prune_at.max(64) {
            let over = |h: &Hold| match h.end {
                Some((End::Released, at)) => at.time < now.saturating_sub(SHORT),
                _ => h.last() < now.saturating_sub(GRACE),
            };
            let ids: Vec<u64> = self
                .holds
                .iter()
                .filter(|(_, h)| over(h))
                .map(|(id, _)| *id)
                .collect();
            gone.extend(ids.into_iter().filter_map(|id| self.take(id)));
            self.prune_at = self.holds.len() * 2;
        }
        while self.holds.len() > MAX {
            let oldest = self.holds.keys().next().copied();
            gone.extend(oldest.and_then(|id| self.take(id)));
        }
        gone
    }

    /// The latest hold of this owner, under this fence where one is given.
    pub fn find(&mut self, owner: &str, fence: Option<u64>) -> Option<&mut Hold> {
        let ids = self.by_owner.get(owner)?;
        let fits =
            |id: &&u64| fence.is_none() || self.holds.get(id).is_some_and(|h| h.fence == fence);
        let id = *ids.iter().rev().find(fits)?;
        self.holds.get_mut(&id)
    }

    /// The holds of one worker.
    pub fn of(&mut self, who: Who) -> impl Iterator<Item = &mut Hold> {
        self.holds.values_mut().filter(move |h| h.who == who)
    }

    /// What is left.
    pub fn drain(&mut self) -> Vec<Hold> {
        self.by_owner.clear();
        std::mem::take(&mut self.holds).into_values().collect()
    }

    fn take(&mut self, id: u64) -> Option<Hold> {
        let hold = self.holds.remove(&id)?;
        if let Some(ids) = self.by_owner.get_mut(&hold.owner) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_owner.remove(&hold.owner);
            }
        }
        Some(hold)
    }
}
