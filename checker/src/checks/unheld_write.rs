//! A write under an owner or fence that no acquire returned or, being unknown, could have.

use fencepost_history::{EventType, Value};

use super::finding::{Findings, holds_if, plural};
use super::track::{F, KeyId, Op, Stamp, Tracker, What};
use super::{Check, Cx, Entry, Finding, Results, StoreOp};
use crate::judge::facts::Facts;

pub const ENTRY: Entry = Entry {
    name: "unheld-write",
    about: "a write reached the store under a grant that was never made",
    new: |_| Box::new(UnheldWrite::default()),
    live: Some(|_| Box::new(UnheldWrite::default())),
};

/// Writes in question at a time.
const WAITING: usize = 256;

/// A write whose grant an acquire that is still open may yet turn out to have returned.
struct Waiting {
    op: Op,
    done: Stamp,
    open: Vec<u64>,
}

#[derive(Default)]
struct UnheldWrite {
    findings: Findings,
    waiting: Vec<Waiting>,
    writes: u64,
}

impl UnheldWrite {
    fn written(&mut self, cx: &Cx<'_>, op: &Op) {
        self.writes += 1;
        let nameless = op.owner == Value::Null && op.fence.is_none();
        let known = cx.track.known.contains(op.key, &op.owner, op.fence);
        let unknown = cx.track.unknown_acquire(op.key);
        let may = unknown.is_some_and(|u| u.index < cx.seen.now.index);
        if op.grant.is_some() || nameless || known != Some(false) || may {
            return;
        }
        let open: Vec<u64> = cx
            .track
            .open_ops()
            .filter(|o| o.key == op.key && o.f == F::Acquire)
            .map(|o| o.process)
            .collect();
        let w = Waiting {
            op: op.clone(),
            done: cx.seen.now,
            open,
        };
        if w.open.is_empty() {
            self.findings.add(story(&w));
        } else if self.waiting.len() < WAITING {
            self.waiting.push(w);
        }
    }

    /// An acquire that was open at the time has returned.
    fn returned(&mut self, track: &Tracker, key: KeyId, process: u64, kind: EventType) {
        let waiting = std::mem::take(&mut self.waiting);
        for mut w in waiting {
            if w.op.key != key || !w.open.contains(&process) {
                self.waiting.push(w);
                continue;
            }
            w.open.retain(|p| *p != process);
            let known = track.known.contains(key, &w.op.owner, w.op.fence);
            if kind == EventType::Info || known != Some(false) {
                continue;
            }
            if w.open.is_empty() {
                self.findings.add(story(&w));
            } else {
                self.waiting.push(w);
            }
        }
    }
}

fn story(w: &Waiting) -> Finding {
    let fence =
        w.op.fence
            .map(|f| format!(", fence {f}"))
            .unwrap_or_default();
    Finding::new(format!(
        "process {} writes to {}{fence}, under a grant that no acquire returned",
        w.op.process, w.op.name
    ))
    .tell(
        w.op.invoke,
        format!("process {} writes{fence}", w.op.process),
    )
    .tell(w.done, "the write reached the store")
}

impl Check for UnheldWrite {
    fn event(&mut self, cx: &Cx<'_>) {
        let What::Done(op, kind) = &cx.seen.what else {
            return;
        };
        let reached = *kind == EventType::Ok || cx.event.error.as_deref() == Some("stale-fence");
        match op.f {
            F::Write | F::Add if reached => self.written(cx, op),
            F::Acquire if !self.waiting.is_empty() => {
                self.returned(cx.track, op.key, op.process, *kind);
            }
            _ => {}
        }
    }

    fn store_again(&mut self, track: &Tracker, line: &StoreOp) {
        if !matches!(line.f, F::Write | F::Add) {
            return;
        }
        let nameless = line.owner == Value::Null && line.fence.is_none();
        let never = match track.find_key(&line.key) {
            None => true,
            Some(key) => {
                track.known.contains(key, &line.owner, line.fence) == Some(false)
                    && !track.may_have_returned(key, u64::MAX)
            }
        };
        if never && !nameless && self.findings.is_empty() {
            self.findings.add(Finding::new(format!(
                "the store's log, seq {}, has a write to {} under a grant that no acquire returned",
                line.seq, line.key
            )));
        }
    }

    fn certain(&self) -> u64 {
        self.findings.count
    }

    fn tell(&self, _: &Tracker) -> Vec<(&'static str, Finding)> {
        self.findings.told(ENTRY.name)
    }

    fn finish(self: Box<Self>, _: &Facts, _: &Tracker, out: &mut Results) {
        let why = plural(self.writes, "write") + ", each under a grant that was made";
        let otherwise = holds_if(self.writes, why, "no write reached the store");
        out.insert(
            ENTRY.name.into(),
            self.findings.conclude(self.writes, otherwise),
        );
    }
}
