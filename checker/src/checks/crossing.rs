//! Writes that the store's own order shows to have landed after another owner's operation.
//!
//! A write may be invoked in time and land late: its worker was frozen between its own check and the
//! socket. The history's stamps cannot show that; the store's serial log can. If an operation under
//! grant B stands before a write under grant A, then A's write landed after B's grant was answered, since
//! B's client asked for nothing before.

use fencepost_history::{EventType, Value};

use super::Cx;
use super::store_op::{ChangeId, StoreOp};
use super::track::{F, Grant, KeyId, Op, Stamp, Tracker, What, value_hash};

/// Rivals remembered for one write.
const RIVALS: usize = 80;
/// Suspect writes remembered in all.
const SUSPECTS: usize = 4096;

/// A write of `a` landed after `b`'s grant, which came after `a`'s promised end.
pub struct Crossing {
    pub a: Grant,
    pub b: Grant,
    /// Invocation of the write, and its completion.
    pub op: Stamp,
    pub done: Option<Stamp>,
}

struct Suspect {
    change: ChangeId,
    a: Grant,
    op: Stamp,
    done: Option<Stamp>,
    /// Outcome unknown: it may land at any later time.
    afloat: bool,
    rivals: Vec<Grant>,
    /// Rivals that the log has shown so far.
    shown: Option<usize>,
}

/// Collects suspects from the history, then meets them in the log.
#[derive(Default)]
pub struct Crossings {
    suspects: Vec<Suspect>,
    gathered: bool,
}

impl Crossings {
    pub fn event(&mut self, cx: &Cx<'_>) {
        if let What::Done(op, kind) = &cx.seen.what {
            let refused =
                *kind == EventType::Fail && cx.event.error.as_deref() != Some("stale-fence");
            if !refused {
                self.consider(cx.track, op, Some(cx.seen.now), *kind == EventType::Info);
            }
        }
        if let Some(id) = cx.seen.granted
            && self.suspects.iter().any(|s| s.afloat)
            && let Some(b) = cx.track.grant(id)
        {
            for s in self.suspects.iter_mut().filter(|s| s.afloat) {
                if rivals(&s.a, b) && s.rivals.len() < RIVALS {
                    s.rivals.push(b.clone());
                }
            }
        }
    }

    fn consider(&mut self, track: &Tracker, op: &Op, done: Option<Stamp>, afloat: bool) {
        if !matches!(op.f, F::Write | F::Add) || self.suspects.len() >= SUSPECTS {
            return;
        }
        let Some(a) = op.grant.and_then(|id| track.grant(id)) else {
            return;
        };
        let late = afloat || done.is_none_or(|d| a.promised.is_some_and(|p| d.time > p));
        // Where the stamps alone show that it acted late, the log adds nothing.
        let shown = a.promised.is_none_or(|p| op.act.time > p);
        if !late || shown {
            return;
        }
        let rivals: Vec<Grant> = track
            .grants_of(op.key)
            .filter(|b| rivals(a, b))
            .take(RIVALS)
            .cloned()
            .collect();
        if rivals.is_empty() && !afloat {
            return;
        }
        self.suspects.push(Suspect {
            change: (op.f, value_hash(&op.value)),
            a: a.clone(),
            op: op.invoke,
            done: if afloat { None } else { done },
            afloat,
            rivals,
            shown: None,
        });
    }

    /// The next line of the log; a crossing if this line shows one.
    pub fn store(&mut self, track: &Tracker, line: &StoreOp) -> Option<Crossing> {
        if !self.gathered {
            self.gathered = true;
            let open: Vec<Op> = track.open_ops().cloned().collect();
            for op in open {
                self.consider(track, &op, None, true);
            }
        }
        if self.suspects.is_empty() {
            return None;
        }
        let key: KeyId = track.find_key(&line.key)?;
        let change = line.change();
        let mut found = None;
        for (n, s) in self.suspects.iter_mut().enumerate() {
            if s.a.key != key {
                continue;
            }
            if s.change == change && matches!(line.f, F::Write | F::Add) {
                found = s.shown.map(|r| (n, r));
            } else if s.shown.is_none() {
                s.shown = s.rivals.iter().position(|b| under(b, line));
            }
        }
        let (n, r) = found?;
        let s = self.suspects.swap_remove(n);
        Some(Crossing {
            b: s.rivals[r].clone(),
            a: s.a,
            op: s.op,
            done: s.done,
        })
    }
}

/// `b` is a later, conflicting grant that was answered after the promised end of `a`.
fn rivals(a: &Grant, b: &Grant) -> bool {
    b.id != a.id && b.conflicts(a) && b.later_than(a) && a.promised.is_some_and(|p| b.ok.time > p)
}

/// The line is of an operation under this grant.
fn under(g: &Grant, line: &StoreOp) -> bool {
    let owner = line.owner == Value::Null || line.owner == g.owner;
    let named = line.owner != Value::Null || line.fence.is_some();
    named && owner && line.fence == g.fence
}
