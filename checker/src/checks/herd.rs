//! A hand-over wakes one waiter: violated when the messages that reach the waiters of a lock are more than the
//! acquires that left it.
//!
//! Whoever leaves (a holder, or a waiter that gives up) has at most one waiter to wake. Summed over a run that bound is
//! exact, however messages and answers of different workers overtake each other; with a herd each leaving wakes
//! everyone who waits. Only clients that tell of their wake-ups (`woken`) can be judged, and only exclusive locks:
//! readers may all be woken by one writer.

use fencepost_history::EventType;
use hashbrown::HashMap;

use super::finding::{Findings, Otherwise, plural};
use super::track::{F, Grant, KeyId, Mode, Op, Stamp, Tracker, What};
use super::{Check, Cx, Entry, Finding, Results};
use crate::judge::facts::Facts;

pub const ENTRY: Entry = Entry {
    name: "herd",
    about: "a hand-over wakes more waiters than one",
    new: |_| Box::new(Herd::default()),
    live: None,
};

/// Wake-ups that a finding cites.
const CITED: usize = 4;

/// Wake-ups of one lock between two of its grants.
#[derive(Clone, Default)]
struct Burst {
    count: u64,
    first: Vec<(Stamp, Option<u32>)>,
    /// The grant that ended it.
    granted: Option<Box<Grant>>,
}

#[derive(Default)]
struct Lock {
    /// Acquires that were answered, or never will be.
    left: u64,
    woken: u64,
    now: Burst,
    worst: Burst,
}

#[derive(Default)]
struct Herd {
    locks: HashMap<KeyId, Lock>,
    /// Where each waiter was told that it is in the queue.
    waiting: HashMap<u64, (KeyId, Stamp)>,
    /// Grants to waiters, those of them with others waiting, and the most that did.
    handed: u64,
    exercised: u64,
    most: usize,
    shared: bool,
}

impl Herd {
    fn woken(&mut self, cx: &Cx<'_>, process: u64) {
        let (Some(&(key, queued)), Some(op)) = (self.waiting.get(&process), cx.track.open(process))
        else {
            return;
        };
        // A connection that is made anew may be told again what it was told before.
        if cx.track.faults.any_between(queued.time, cx.seen.now.time) {
            return;
        }
        let lock = self.locks.entry(key).or_default();
        lock.woken += 1;
        lock.now.count += 1;
        if lock.now.first.len() < CITED {
            lock.now.first.push((cx.seen.now, op.worker));
        }
    }

    fn ended(&mut self, cx: &Cx<'_>, op: &Op, kind: EventType) {
        self.shared |= op.mode != Mode::Exclusive;
        let waited = self.waiting.remove(&op.process).is_some();
        let lock = self.locks.entry(op.key).or_default();
        lock.left += 1;
        if kind != EventType::Ok {
            return;
        }
        let mut burst = std::mem::take(&mut lock.now);
        if burst.count > lock.worst.count {
            let granted = cx.seen.granted.and_then(|id| cx.track.grant(id));
            burst.granted = granted.map(|g| Box::new(g.clone()));
            lock.worst = burst;
        }
        if waited {
            let behind = self.waiting.values().filter(|w| w.0 == op.key).count();
            self.handed += 1;
            self.exercised += u64::from(behind > 0);
            self.most = self.most.max(behind + 1);
        }
    }

    fn findings(&self, track: &Tracker) -> Findings {
        let mut findings = Findings::default();
        let over = self.locks.iter().filter(|(_, l)| l.woken > l.left);
        for (key, lock) in over {
            let name = track.key_name(*key);
            let mut f = Finding::new(format!(
                "{} reached the waiters of {name}, which only {} left: up to {} were woken by one hand-over",
                plural(lock.woken, "wake-up"),
                plural(lock.left, "acquire"),
                lock.worst.count
            ));
            for (at, worker) in &lock.worst.first {
                let who = worker.map_or("a waiter".to_owned(), |w| format!("w{w}"));
                f = f.tell(*at, format!("{who} is woken for {name}"));
            }
            if let Some(g) = &lock.worst.granted {
                f = f.granted(g);
            }
            findings.add(f);
        }
        findings
    }
}

impl Check for Herd {
    fn event(&mut self, cx: &Cx<'_>) {
        match &cx.seen.what {
            What::Queued(p) => {
                if let Some(op) = cx.track.open(*p)
                    && op.f == F::Acquire
                {
                    self.waiting.entry(*p).or_insert((op.key, cx.seen.now));
                }
            }
            What::Woken(p) => self.woken(cx, *p),
            What::Done(op, kind) if op.f == F::Acquire => self.ended(cx, op, *kind),
            _ => {}
        }
    }

    fn finish(self: Box<Self>, _: &Facts, track: &Tracker, out: &mut Results) {
        let woken: u64 = self.locks.values().map(|l| l.woken).sum();
        let otherwise = if self.shared {
            Otherwise::Unknown("not applicable: a lock that is shared may wake several".into())
        } else if woken == 0 {
            Otherwise::Unknown("no client tells what woke it".into())
        } else if self.exercised == 0 {
            Otherwise::Unknown("nobody was granted with another waiting".into())
        } else {
            Otherwise::Holds(format!(
                "{} for {} to waiters ({:.2} each), of whom up to {} stood in the queue",
                plural(woken, "wake-up"),
                plural(self.handed, "hand-over"),
                woken as f64 / self.handed as f64,
                self.most
            ))
        };
        let findings = match self.shared {
            true => Findings::default(),
            false => self.findings(track),
        };
        let result = findings.conclude(self.exercised, otherwise);
        out.insert(ENTRY.name.into(), result);
    }
}
