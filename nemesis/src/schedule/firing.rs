//! One firing of a plan: from its orders to the last heal.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::cue::{Cue, CueKind};
use super::plan::Until;
use crate::process::ProcId;

/// Why a plan fired: what its orders and its end refer to.
#[derive(Clone, Debug, Default)]
pub(super) struct Cause {
    pub lock: Option<Arc<str>>,
    pub trigger: Option<u32>,
    /// The operation that waits for `go`: worker and request id.
    pub waiting: Option<(u32, u64)>,
}

/// Orders given at one time and what ends them.
#[derive(Clone, Debug)]
pub(super) struct Firing {
    pub cause: Cause,
    /// Orders that hold, or whose install is still running; in the order of their installs.
    ids: Vec<String>,
    unsettled: BTreeSet<String>,
    /// Workers that are hit: never "another" worker.
    hit: BTreeSet<u32>,
    since: Option<Duration>,
    hold: Option<Duration>,
    until: Option<Until>,
    at_most: Duration,
    granted: BTreeSet<(u32, Option<Arc<str>>)>,
    met: bool,
    healing: bool,
}

impl Firing {
    pub fn new(
        cause: Cause,
        ids: impl IntoIterator<Item = String>,
        hold: Option<Duration>,
        until: Option<Until>,
        at_most: Duration,
    ) -> Self {
        let ids: Vec<String> = ids.into_iter().collect();
        Firing {
            hit: cause.trigger.into_iter().collect(),
            cause,
            unsettled: ids.iter().cloned().collect(),
            ids,
            since: None,
            hold,
            until,
            at_most,
            granted: BTreeSet::new(),
            met: false,
            healing: false,
        }
    }

    pub fn has(&self, id: &str) -> bool {
        self.ids.iter().any(|i| i == id)
    }

    /// An install came to its end. True when it was the last of this firing.
    pub fn settled(&mut self, id: &str, targets: &[ProcId], holds: bool, now: Duration) -> bool {
        self.hit.extend(targets.iter().filter_map(|t| match t {
            ProcId::Worker(w) => Some(*w),
            ProcId::Node(_) => None,
        }));
        if !holds {
            self.ids.retain(|i| i != id);
        }
        let last = self.unsettled.remove(id) && self.unsettled.is_empty();
        if last {
            self.since = Some(now);
        }
        last
    }

    pub fn healed(&mut self, id: &str) {
        self.ids.retain(|i| i != id);
    }

    /// Nothing holds and nothing is being installed.
    pub fn is_over(&self) -> bool {
        self.ids.is_empty() && self.unsettled.is_empty()
    }

    /// Notes progress towards `until`.
    pub fn on_cue(&mut self, cue: &Cue) {
        let concerns = self.cause.lock.is_none() || self.cause.lock == cue.lock;
        if self.since.is_none() || !concerns || self.hit.contains(&cue.worker) {
            return;
        }
        match cue.kind {
            CueKind::Grant => {
                self.met |= self.until == Some(Until::AnotherGrant);
                self.granted.insert((cue.worker, cue.lock.clone()));
            }
            CueKind::Write if self.granted.contains(&(cue.worker, cue.lock.clone())) => {
                self.met |= self.until == Some(Until::AnotherWrite);
            }
            _ => {}
        }
    }

    /// When time alone ends it.
    pub fn due(&self) -> Option<Duration> {
        let since = self.since.filter(|_| !self.healing)?;
        match (self.until, self.hold) {
            (Some(_), hold) if self.met => Some(since + hold.unwrap_or_default()),
            (Some(_), _) => Some(since + self.at_most),
            (None, hold) => Some(since + hold?),
        }
    }

    /// Why it has to end now, if it has to.
    pub fn ripe(&self, now: Duration) -> Option<&'static str> {
        (self.due()? <= now).then_some(match self.until {
            None => "its time is over",
            Some(_) if self.met => "what it waited for has happened",
            Some(_) => "what it waited for did not happen within at_most",
        })
    }

    /// The ids to heal, the last installed first; once only.
    pub fn heal(&mut self) -> Vec<String> {
        if self.healing || !self.unsettled.is_empty() {
            return Vec::new();
        }
        self.healing = true;
        self.ids.iter().rev().cloned().collect()
    }
}
