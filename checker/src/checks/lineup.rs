//! All checks side by side over one stream of events.

use fencepost_history::Event;

use super::track::Tracker;
use super::{CHECKS, Check, Cx, Finding, Results, StoreOp};
use crate::judge::facts::Facts;

/// Every registered check, fed together.
pub struct Lineup {
    facts: Facts,
    track: Tracker,
    checks: Vec<Box<dyn Check>>,
    /// Certain violations of each check that were asked for.
    asked: Vec<u64>,
}

impl Lineup {
    pub fn new(facts: &Facts) -> Lineup {
        Lineup::of(facts, CHECKS.iter().map(|c| (c.new)(facts)).collect())
    }

    /// Those checks that can be certain of something before the end.
    pub(crate) fn live(facts: &Facts) -> Lineup {
        let checks = CHECKS.iter().filter_map(|c| c.live).map(|new| new(facts));
        Lineup::of(facts, checks.collect())
    }

    fn of(facts: &Facts, checks: Vec<Box<dyn Check>>) -> Lineup {
        Lineup {
            facts: facts.clone(),
            track: Tracker::new(facts),
            asked: vec![0; checks.len()],
            checks,
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
        for check in &mut self.checks {
            check.event(&cx);
        }
    }

    /// The next line of the store's log, before the first event or during a run.
    pub fn store(&mut self, op: &StoreOp) {
        for check in &mut self.checks {
            check.store(op);
        }
    }

    /// The next line of the store's log, from its beginning again, after the last event.
    pub fn store_again(&mut self, op: &StoreOp) {
        for check in &mut self.checks {
            check.store_again(&self.track, op);
        }
    }

    /// What became certain since this was asked last: entry of `verdict.json` and plainest finding.
    pub(crate) fn news(&mut self) -> Vec<(&'static str, Finding)> {
        let mut news = Vec::new();
        for (check, asked) in self.checks.iter().zip(&mut self.asked) {
            let certain = check.certain();
            if certain > *asked {
                *asked = certain;
                news.extend(check.tell(&self.track));
            }
        }
        news
    }

    pub fn tracker(&self) -> &Tracker {
        &self.track
    }

    pub fn finish(self) -> Results {
        let mut out = Results::new();
        for check in self.checks {
            check.finish(&self.facts, &self.track, &mut out);
        }
        out
    }
}
