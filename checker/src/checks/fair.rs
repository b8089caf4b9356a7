//! Where FIFO is promised: a waiter that was in the queue before another asked is granted after it,
//! neither being faulted; or a wake-up was lost.
//!
//! Replies of two workers may be read in either order, so a waiter counts as earlier only when its `queued`
//! reply was read before the other's acquire was invoked.

use std::sync::Arc;

use fencepost_history::EventType;
use hashbrown::HashMap;

use super::finding::{Findings, Otherwise, plural, seconds};
use super::track::{F, Grant, KeyId, Op, Stamp, Tracker, What, was_held};
use super::{Check, Cx, Entry, Finding, Results};
use crate::judge::facts::Facts;

pub const ENTRY: Entry = Entry {
    name: "fair",
    about: "a queued waiter is overtaken, or its wake-up is lost, where FIFO is promised",
    new: |facts| Box::new(Fair::new(facts)),
    live: Some(|facts| Box::new(Fair::new(facts))),
};

/// A queue that sleeps longer than half a lease after a release has lost its wake-up; at least this.
const SLEEP: i64 = 500_000_000;

struct Waiter {
    key: KeyId,
    invoke: Stamp,
    queued: Stamp,
    /// The first grant to somebody who asked later.
    overtaken: Option<Arc<Grant>>,
}

#[derive(Default)]
struct Fair {
    promised: bool,
    findings: Findings,
    waiting: HashMap<u64, Waiter>,
    /// Last release that was answered "was held", with nothing granted since.
    freed: HashMap<KeyId, (Stamp, Stamp)>,
    /// Grants to a waiter with others behind it.
    exercised: u64,
}

impl Fair {
    fn new(facts: &Facts) -> Fair {
        Fair {
            promised: facts.system.fifo,
            ..Fair::default()
        }
    }

    fn granted(&mut self, cx: &Cx<'_>, b: &Grant) {
        let mine = self.waiting.remove(&b.process);
        let behind = |w: &Waiter| {
            mine.as_ref()
                .is_some_and(|m| w.key == b.key && w.invoke.index > m.queued.index)
        };
        self.exercised += u64::from(self.waiting.values().any(behind));
        for w in self.waiting.values_mut() {
            let earlier = w.key == b.key && w.queued.index < b.acquire.index;
            if earlier && w.overtaken.is_none() {
                w.overtaken = Some(Arc::new(b.clone()));
            }
        }
        self.slept(cx, b, mine.as_ref());
        if let Some(w) = mine {
            self.overtaken(cx.track, b, &w);
        }
    }

    /// `b` is granted at last: was somebody who asked later granted before?
    fn overtaken(&mut self, track: &Tracker, b: &Grant, w: &Waiter) {
        let Some(other) = &w.overtaken else { return };
        // With a lower fence it was granted first after all, and its answer came late.
        let first = matches!((b.fence, other.fence), (Some(x), Some(y)) if x < y);
        if first || track.faults.any_between(w.queued.time, b.ok.time) || b.mode != other.mode {
            return;
        }
        let f = Finding::new(format!(
            "{} was queued for {} before {} asked, and is granted it after",
            b.who(),
            b.name,
            other.who()
        ))
        .cite(w.invoke)
        .tell(w.queued, format!("{} is queued for {}", b.who(), b.name))
        .tell(other.acquire, format!("{} asks for it", other.who()))
        .granted(other)
        .granted(b);
        self.findings.add(f);
    }

    fn slept(&mut self, cx: &Cx<'_>, b: &Grant, mine: Option<&Waiter>) {
        let Some((asked, freed)) = self.freed.remove(&b.key) else {
            return;
        };
        let limit = SLEEP.max(b.ttl.unwrap_or(2_000_000_000) / 2);
        let slept = b.ok.time - freed.time;
        let Some(w) = mine.filter(|w| w.queued.index < asked.index) else {
            return;
        };
        if slept <= limit || cx.track.faults.any_between(w.queued.time, b.ok.time) {
            return;
        }
        let f = Finding::new(format!(
            "{} was queued for {} and is granted it only {} after its release: the wake-up was lost",
            b.who(),
            b.name,
            seconds(slept)
        ))
        .tell(w.queued, format!("{} is queued for {}", b.who(), b.name))
        .cite(asked)
        .tell(freed, "the lock is released")
        .granted(b);
        self.findings.add(f);
    }

    fn done(&mut self, cx: &Cx<'_>, op: &Op, kind: EventType) {
        match op.f {
            F::Acquire if cx.seen.granted.is_none() => drop(self.waiting.remove(&op.process)),
            // Once another grant is there, this release is not what a waiter waited for.
            F::Release
                if kind == EventType::Ok
                    && was_held(&cx.event.value)
                    && cx.track.live_of(op.key).all(|g| g.release.is_some()) =>
            {
                self.freed.insert(op.key, (op.invoke, cx.seen.now));
            }
            _ => {}
        }
    }
}

impl Check for Fair {
    fn event(&mut self, cx: &Cx<'_>) {
        if !self.promised {
            return;
        }
        match &cx.seen.what {
            What::Queued(p) => {
                if let Some(op) = cx.track.open(*p)
                    && op.f == F::Acquire
                {
                    let waiter = Waiter {
                        key: op.key,
                        invoke: op.invoke,
                        queued: cx.seen.now,
                        overtaken: None,
                    };
                    self.waiting.entry(*p).or_insert(waiter);
                }
            }
            What::Done(op, kind) => {
                if let Some(b) = cx.seen.granted.and_then(|id| cx.track.grant(id)) {
                    self.granted(cx, b);
                }
                self.done(cx, op, *kind);
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

    fn finish(self: Box<Self>, _: &Facts, _: &Tracker, out: &mut Results) {
        let otherwise = match (self.promised, self.exercised) {
            (false, _) => {
                Otherwise::Unknown("not applicable: no order of waiters is promised".into())
            }
            (true, 0) => Otherwise::Unknown("nobody was granted with another queued behind".into()),
            (true, n) => Otherwise::Holds(plural(n, "grant") + " with others behind, in order"),
        };
        out.insert(
            ENTRY.name.into(),
            self.findings.conclude(self.exercised, otherwise),
        );
    }
}
