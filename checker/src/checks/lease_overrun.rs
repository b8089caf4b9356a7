//! A write, accepted or not, was invoked by a worker, or reached the store from it, after its
//! promised end *and* after another owner's later conflicting grant was ok: the damage that only a fence
//! prevents. Without such a grant it is late, not violated.

use fencepost_history::EventType;

use super::crossing::{Crossing, Crossings};
use super::double_holder::turnover;
use super::finding::{Findings, holds_if, plural};
use super::track::{F, Grant, Op, Stamp, Tracker, What};
use super::{Check, Cx, Entry, Finding, Results, StoreOp};
use crate::judge::facts::Facts;

pub const ENTRY: Entry = Entry {
    name: "lease-overrun",
    about: "a write reached the store after its lease ran out and another client was granted the lock",
    new: |_| {
        Box::new(LeaseOverrun {
            crossings: Some(Crossings::default()),
            ..LeaseOverrun::default()
        })
    },
    // The log is gone through again at the end only.
    live: Some(|_| Box::new(LeaseOverrun::default())),
};

#[derive(Default)]
struct LeaseOverrun {
    findings: Findings,
    crossings: Option<Crossings>,
    takeovers: u64,
    late: u64,
    leases: bool,
}

impl LeaseOverrun {
    fn done(&mut self, cx: &Cx<'_>, op: &Op, kind: EventType) {
        let accepted = kind == EventType::Ok;
        let refused = kind == EventType::Fail && cx.event.error.as_deref() == Some("stale-fence");
        if !matches!(op.f, F::Write | F::Add) || !(accepted || refused) {
            return;
        }
        let Some(a) = op.grant.and_then(|id| cx.track.grant(id)) else {
            return;
        };
        if a.promised.is_none_or(|p| op.act.time <= p) {
            return;
        }
        let rival = cx.track.grants_of(op.key).find(|b| {
            b.id != a.id && b.conflicts(a) && b.ok.index <= op.act.index && b.later_than(a)
        });
        match rival {
            Some(b) => {
                let done = Some(cx.seen.now);
                let f = story(cx.track, (a, b), op.invoke, done, op.act);
                self.findings.add(f);
            }
            None => self.late += 1,
        }
    }
}

fn story(
    track: &Tracker,
    (a, b): (&Grant, &Grant),
    op: Stamp,
    done: Option<Stamp>,
    act: Stamp,
) -> Finding {
    let mut f = Finding::new(format!(
        "a write of {} under {}{} came after its promised end and after {} was granted it{}",
        a.who(),
        a.name,
        a.fence_words(),
        b.who(),
        b.fence_words()
    ))
    .granted(a);
    let fault = a.promised.and_then(|p| track.faults.across(a.worker, p));
    f = f.ran_out(a, fault);
    f = f
        .granted(b)
        .tell(op, format!("{} is asked to write", a.who()));
    if act != op {
        f = f.tell(act, format!("{} is let go, and writes", a.who()));
    }
    match done {
        Some(d) => f.tell(d, format!("the write of {} is answered", a.who())),
        None => f,
    }
}

impl Check for LeaseOverrun {
    fn event(&mut self, cx: &Cx<'_>) {
        if let Some(crossings) = &mut self.crossings {
            crossings.event(cx);
        }
        if let Some(b) = cx.seen.granted.and_then(|id| cx.track.grant(id)) {
            self.leases |= b.promised.is_some();
            self.takeovers += u64::from(turnover(cx.track, b).1);
        }
        if let What::Done(op, kind) = &cx.seen.what {
            self.done(cx, op, *kind);
        }
    }

    fn store_again(&mut self, track: &Tracker, line: &StoreOp) {
        let crossing = self.crossings.as_mut().and_then(|c| c.store(track, line));
        if let Some(Crossing { a, b, op, done }) = crossing {
            self.findings.add(story(track, (&a, &b), op, done, op));
        }
    }

    fn certain(&self) -> u64 {
        self.findings.count
    }

    fn tell(&self, _: &Tracker) -> Vec<(&'static str, Finding)> {
        self.findings.told(ENTRY.name)
    }

    fn finish(self: Box<Self>, _: &Facts, _: &Tracker, out: &mut Results) {
        let late = match self.late {
            0 => String::new(),
            n => format!("; {} late, with no other grant by then", plural(n, "write")),
        };
        let unmet = if self.leases {
            format!("no lease ran out under its holder before another was granted{late}")
        } else {
            "the locks have no lease".to_owned()
        };
        let why = format!(
            "{} ran out under a holder, no write came after{late}",
            plural(self.takeovers, "lease")
        );
        let otherwise = holds_if(self.takeovers, why, &unmet);
        out.insert(
            ENTRY.name.into(),
            self.findings.conclude(self.takeovers, otherwise),
        );
    }
}
