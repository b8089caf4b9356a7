//! Only the owner may release or renew: violated by a release or renewal whose reply says "was held"
//! for a grant never acquired, already released, or superseded by another's ok before it was invoked. An
//! "ok, nothing to do" is no success.

use fencepost_history::EventType;

use super::finding::{Findings, holds_if, plural};
use super::track::{F, Grant, Mode, Op, Stamp, Tracker, What, was_held};
use super::{Check, Cx, Entry, Finding, Results};
use crate::judge::facts::Facts;

pub const ENTRY: Entry = Entry {
    name: "owner-only",
    about: "a release or renewal succeeded for somebody who did not hold the lock",
    new: |_| Box::new(OwnerOnly::default()),
    live: Some(|_| Box::new(OwnerOnly::default())),
};

/// Ended grants that are looked through for one that superseded.
const LOOK_BACK: usize = 8;

#[derive(Default)]
struct OwnerOnly {
    findings: Findings,
    /// Releases and renewals of what was not held, whatever the answer.
    exercised: u64,
}

impl OwnerOnly {
    fn answered(&mut self, cx: &Cx<'_>, op: &Op, success: bool) {
        let Some(a) = op.grant.and_then(|id| cx.track.grant(id)) else {
            self.stranger(cx, op, success);
            return;
        };
        let verb = if op.f == F::Renew {
            "renews"
        } else {
            "releases"
        };
        if let Some(freed) = a.freed.filter(|f| f.index < op.invoke.index) {
            self.exercised += 1;
            if success {
                let f = reused(a, verb)
                    .tell(freed, "its release is answered: it was held")
                    .tell(op.invoke, format!("{} {verb} {} again", a.who(), a.name))
                    .tell(cx.seen.now, "and is told that it was held");
                self.findings.add(f);
            }
            return;
        }
        self.superseded(cx, a, verb, op.invoke, success);
    }

    fn superseded(&mut self, cx: &Cx<'_>, a: &Grant, verb: &str, sent: Stamp, success: bool) {
        if a.mode == Mode::Semaphore {
            return;
        }
        let rival = cx.track.recent_of(a.key, LOOK_BACK).find(|b| {
            b.id != a.id && b.conflicts(a) && b.ok.index <= sent.index && b.later_than(a)
        });
        let Some(b) = rival else { return };
        self.exercised += 1;
        if !success {
            return;
        }
        let f = Finding::new(format!(
            "{} {verb} {}{} and is told that it was held, after {} was granted it{}",
            a.who(),
            a.name,
            a.fence_words(),
            b.who(),
            b.fence_words()
        ))
        .granted(a)
        .granted(b)
        .tell(
            sent,
            format!("{} {verb} {}{}", a.who(), a.name, a.fence_words()),
        )
        .tell(cx.seen.now, "and is told that it was held");
        self.findings.add(f);
    }

    /// Of a grant that nobody knows: surely never acquired, or too long ago to tell.
    fn stranger(&mut self, cx: &Cx<'_>, op: &Op, success: bool) {
        let never = cx.track.known.contains(op.key, &op.owner, op.fence) == Some(false)
            && !cx.track.may_have_returned(op.key, op.process);
        if !never {
            return;
        }
        self.exercised += 1;
        if success {
            let f = Finding::new(format!(
                "process {} succeeds with a {} of {}{}, which no acquire returned",
                op.process,
                if op.f == F::Renew {
                    "renewal"
                } else {
                    "release"
                },
                op.name,
                op.fence.map(|f| format!(", fence {f}")).unwrap_or_default(),
            ))
            .tell(
                op.invoke,
                format!("process {} names a grant never made", op.process),
            )
            .tell(cx.seen.now, "and is told that it was held");
            self.findings.add(f);
        }
    }
}

fn reused(a: &Grant, verb: &str) -> Finding {
    Finding::new(format!(
        "{} {verb} {}{} and is told that it was held, though it had been released",
        a.who(),
        a.name,
        a.fence_words()
    ))
    .granted(a)
}

impl Check for OwnerOnly {
    fn event(&mut self, cx: &Cx<'_>) {
        if let What::Done(op, kind) = &cx.seen.what {
            let success = match op.f {
                F::Release => *kind == EventType::Ok && was_held(&cx.event.value),
                F::Renew => *kind == EventType::Ok,
                _ => return,
            };
            if *kind != EventType::Info {
                self.answered(cx, op, success);
            }
            return;
        }
        if let Some((id, sent, _)) = cx.seen.renewed
            && let Some(a) = cx.track.grant(id)
        {
            self.superseded(cx, a, "renews", sent, true);
        }
    }

    fn certain(&self) -> u64 {
        self.findings.count
    }

    fn tell(&self, _: &Tracker) -> Vec<(&'static str, Finding)> {
        self.findings.told(ENTRY.name)
    }

    fn finish(self: Box<Self>, _: &Facts, _: &Tracker, out: &mut Results) {
        let why =
            plural(self.exercised, "release") + " or renewal of what was not held, all refused";
        let otherwise = holds_if(
            self.exercised,
            why,
            "nobody released or renewed what it did not hold",
        );
        out.insert(
            ENTRY.name.into(),
            self.findings.conclude(self.exercised, otherwise),
        );
    }
}
