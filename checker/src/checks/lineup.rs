//! All checks side by side over one stream of events.

use fencepost_history::Event;

use super::track::Tracker;
use super::{CHECKS, Check, Cx, Results, StoreOp};
use crate::judge::facts::Facts;

/// Every registered check, fed together.
pub struct Lineup {
    facts: Facts,
    track: Tracker,
    checks: Vec<(&'static str, Box<dyn Check>)>,
}

impl Lineup {
    pub fn new(facts: &Facts) -> Lineup {
        Lineup {
            facts: facts.clone(),
            track: Tracker::new(facts),
            checks: CHECKS.iter().map(|c| (c.name, (c.new)(facts))).collect(),
        }
    }

    /// The next event, in the order of the history.
    pub fn event(&mut self, event: &Event) {
        let seen = self.track.step(event);
        let cx = Cx {
            facts: &self.facts,
            track: &self.track,
            event,
            seen: &seen,
        };
        for (_, check) in &mut self.checks {
            check.event(&cx);
        }
    }

    /// The next line of the store's log, before the first event or during a run.
    pub fn store(&mut self, op: &StoreOp) {
        for (_, check) in &mut self.checks {
            check.store(op);
        }
    }

    /// The next line of the store's log, from its beginning again, after the last event.
    pub fn store_again(&mut self, op: &StoreOp) {
        for (_, check) in &mut self.checks {
            check.store_again(&self.track, op);
        }
    }

    /// The first check of which a violation is certain by now: what `fail-fast` asks.
    pub fn violated(&self) -> Option<&'static str> {
        self.checks
            .iter()
            .find(|(_, c)| c.violated())
            .map(|(name, _)| *name)
    }

    pub fn tracker(&self) -> &Tracker {
        &self.track
    }

    pub fn finish(self) -> Results {
        let mut out = Results::new();
        for (_, check) in self.checks {
            check.finish(&self.facts, &self.track, &mut out);
        }
        out
    }
}
