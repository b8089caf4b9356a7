//! What checks find, and how it becomes a result.

use crate::checks::track::{Grant, Interval, Stamp};
use crate::verdict::{CheckResult, Expected, Step, Verdict};

/// One violation with its smallest evidence.
#[derive(Clone, Debug)]
pub struct Finding {
    /// One lower-case line.
    pub reason: String,
    pub evidence: Vec<u64>,
    pub story: Vec<Step>,
}

impl Finding {
    pub fn new(reason: String) -> Finding {
        Finding {
            reason,
            evidence: Vec::new(),
            story: Vec::new(),
        }
    }

    /// An event that the finding rests on, told.
    #[must_use]
    pub fn tell(mut self, at: Stamp, text: impl Into<String>) -> Finding {
        self.story.push(step(at, text));
        self.cite(at)
    }

    /// Something that follows from an event, at another time (a lease that runs out).
    #[must_use]
    pub fn follow(mut self, from: Stamp, time: i64, text: impl Into<String>) -> Finding {
        let at = Stamp {
            index: from.index,
            time,
        };
        self.story.push(step(at, text));
        self
    }

    /// An event that the finding rests on, and that needs no words.
    #[must_use]
    pub fn cite(mut self, at: Stamp) -> Finding {
        self.evidence.push(at.index);
        self
    }

    /// How a grant came to be.
    #[must_use]
    pub fn granted(self, g: &Grant) -> Finding {
        let lease = match g.ttl {
            Some(ttl) => format!(" for {}", seconds(ttl)),
            None => String::new(),
        };
        let words = format!(
            "{} is granted {}{lease}{}",
            g.who(),
            g.name,
            g.fence_words()
        );
        let told = self.cite(g.acquire).tell(g.ok, words);
        match (g.renewed, g.promised) {
            (Some((_, answer)), Some(p)) => told.tell(
                answer,
                format!("its lease is renewed, until {} at least", seconds(p)),
            ),
            _ => told,
        }
    }

    /// How the hold of `g` ended: a fault across its promised end, the end itself, or its release.
    #[must_use]
    pub fn ran_out(mut self, g: &Grant, fault: Option<&Interval>) -> Finding {
        if let Some(fault) = fault {
            let begin = fault.sure.unwrap_or(fault.start);
            self = self.tell(begin, format!("{} of {} begins", fault.fault, g.who()));
            if let Some(heal) = fault.heal {
                self = self.tell(heal, format!("{} of {} ends", fault.fault, g.who()));
            }
        }
        match (g.release, g.promised) {
            (Some(r), p) if p.is_none_or(|p| r.time <= p) => {
                self.tell(r, format!("{} releases {}", g.who(), g.name))
            }
            (_, Some(p)) => {
                let from = g.renewed.map_or(g.acquire, |(sent, _)| sent);
                let words = format!("the promised end of {}'s lease passes", g.who());
                self.follow(from, p, words)
            }
            _ => self,
        }
    }

    pub(super) fn sorted(mut self) -> Finding {
        self.evidence.sort_unstable();
        self.evidence.dedup();
        self.story.sort_by_key(|s| (s.time, s.index));
        self
    }
}

fn step(at: Stamp, text: impl Into<String>) -> Step {
    Step {
        index: at.index,
        time: at.time,
        text: text.into(),
    }
}

/// `1.250 s`, from nanoseconds.
pub fn seconds(ns: i64) -> String {
    format!("{:.3} s", ns as f64 / 1e9)
}

/// `a thing`, `3 things`.
pub fn plural(n: u64, thing: &str) -> String {
    match n {
        1 => format!("1 {thing}"),
        _ => format!("{n} {thing}s"),
    }
}

/// Counts findings and keeps the one with the least evidence, the earliest of equals.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    pub count: u64,
    best: Option<Finding>,
}

impl Findings {
    pub fn add(&mut self, f: Finding) {
        self.count += 1;
        let f = f.sorted();
        let better = match &self.best {
            None => true,
            Some(b) => f.evidence.len() < b.evidence.len(),
        };
        if better {
            self.best = Some(f);
        }
    }

    /// The plainest under the name of its check, if there is any.
    pub fn told(&self, name: &'static str) -> Vec<(&'static str, Finding)> {
        self.best.iter().map(|f| (name, f.clone())).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Violated by the findings; without any, `otherwise` holds or is unknown.
    pub fn conclude(self, exercised: u64, otherwise: Otherwise) -> CheckResult {
        let Some(best) = self.best else {
            let (verdict, reason) = match otherwise {
                Otherwise::Holds(why) if exercised > 0 => (Verdict::Holds, why),
                Otherwise::Holds(_) => (Verdict::Unknown, "not exercised".to_owned()),
                Otherwise::Unknown(why) => (Verdict::Unknown, why),
            };
            return result(verdict, reason, exercised);
        };
        CheckResult {
            evidence: best.evidence,
            story: best.story,
            count: self.count,
            ..result(Verdict::Violated, best.reason, exercised)
        }
    }
}

pub enum Otherwise {
    Holds(String),
    Unknown(String),
}

/// `holds` when the exercise condition was met, else unknown because `unmet`.
pub fn holds_if(exercised: u64, why: String, unmet: &str) -> Otherwise {
    if exercised > 0 {
        Otherwise::Holds(why)
    } else {
        Otherwise::Unknown(unmet.to_owned())
    }
}

/// A result without evidence.
pub fn result(verdict: Verdict, reason: String, exercised: u64) -> CheckResult {
    CheckResult {
        verdict,
        expected: Expected::NotViolated,
        reason,
        evidence: Vec::new(),
        story: Vec::new(),
        count: 0,
        exercised,
    }
}

pub fn unknown(reason: impl Into<String>) -> CheckResult {
    result(Verdict::Unknown, reason.into(), 0)
}
