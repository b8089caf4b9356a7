//! The lock-safety checks during a run.

use std::collections::{HashSet, VecDeque};

use fencepost_history::Event;

use super::facts::Facts;
use super::outcome;
use crate::checks::{Finding, Lineup, StoreOp};
use crate::verdict::Expected;

/// A violation that nothing recorded later can take back.
#[derive(Clone, Debug)]
pub struct Certain {
    /// Entry of `verdict.json`: `fence-monotonic`, `double-holder.service`, …
    pub check: &'static str,
    /// What the run expects of this check.
    pub expected: Expected,
    pub finding: Finding,
}

impl Certain {
    /// Whether the run fails by it, whatever comes: the reason to end it early.
    pub fn is_unexpected(&self) -> bool {
        matches!(self.expected, Expected::Holds | Expected::NotViolated)
    }
}

/// Judges a run while it goes on, for `fail-fast`.
///
/// It takes the events as they are recorded, and the lines of the store's log whenever they come, and answers
/// at once when a check becomes violated beyond doubt, once a check (and class). What a later event could still
/// explain is not told: a double grant, say, until each of the two workers has shown that it had noticed no loss.
/// So silence means nothing; [`super::judge`] has the verdict when the run is over.
///
/// Memory is bounded by what is open (operations, grants, faults, keys), not by what has passed, with a fixed
/// ceiling on what is remembered of the past (some 100 MB at most, and far less in a run of one hour).
///
/// ```
/// use fencepost_checker::judge::{Live, facts::Facts};
/// use fencepost_history::read_bytes;
///
/// let facts = Facts::parse(r#"{"system":{"fence":true},"expect":{"fence-monotonic":"holds"}}"#)?;
/// let recorded = r#"
/// {"index":0,"time":1,"process":0,"type":"invoke","f":"acquire","key":"L","value":{"worker":0}}
/// {"index":1,"time":2,"process":0,"type":"ok","f":"acquire","key":"L","value":{"owner":"a","fence":7}}
/// {"index":2,"time":3,"process":0,"type":"invoke","f":"release","key":"L","value":{"owner":"a","fence":7}}
/// {"index":3,"time":4,"process":0,"type":"ok","f":"release","key":"L","value":{"held":true}}
/// {"index":4,"time":5,"process":1,"type":"invoke","f":"acquire","key":"L","value":{"worker":1}}
/// {"index":5,"time":6,"process":1,"type":"ok","f":"acquire","key":"L","value":{"owner":"b","fence":6}}
/// "#;
/// let mut live = Live::new(&facts);
/// let mut stopped = None;
/// for event in &read_bytes(recorded)?.events {
///     if let Some(certain) = live.push(event).filter(|c| c.is_unexpected()) {
///         assert_eq!(certain.check, "fence-monotonic");
///         assert_eq!(certain.finding.evidence, [0, 1, 4, 5]);
///         stopped = Some(event.index);
///         break;
///     }
/// }
/// assert_eq!(stopped, Some(5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Live {
    facts: Facts,
    lineup: Lineup,
    told: HashSet<&'static str>,
    /// Became certain at one event; told one at a time, unexpected ones first.
    waiting: VecDeque<Certain>,
}

impl Live {
    pub fn new(facts: &Facts) -> Live {
        Live {
            facts: facts.clone(),
            lineup: Lineup::live(facts),
            told: HashSet::new(),
            waiting: VecDeque::new(),
        }
    }

    /// The next event, in the order in which it is recorded.
    pub fn push(&mut self, event: &Event) -> Option<Certain> {
        self.lineup.event(event);
        self.next()
    }

    /// The next line of the store's own log, at any time after it was written.
    pub fn push_store(&mut self, op: &StoreOp) -> Option<Certain> {
        self.lineup.store(op);
        self.next()
    }

    fn next(&mut self) -> Option<Certain> {
        for (check, finding) in self.lineup.news() {
            if !self.told.insert(check) {
                continue;
            }
            let certain = Certain {
                check,
                expected: outcome::expected(&self.facts, check),
                finding,
            };
            match certain.is_unexpected() {
                true => self.waiting.push_front(certain),
                false => self.waiting.push_back(certain),
            }
        }
        self.waiting.pop_front()
    }
}
