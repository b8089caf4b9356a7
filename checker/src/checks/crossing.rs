//! Writes that the store's own order shows to have landed after another owner's operation.
//!
//! A write may be invoked in time and land late: its worker was frozen between its own check and the
//! socket. The history's stamps cannot show that; the store's serial log can. If an operation under
//! grant B stands before a write under grant A, then A's write landed after B's grant was answered, since
//! B's client asked for nothing before.

use std::sync::Arc;

use fencepost_history::{EventType, Value};
use hashbrown::HashMap;
use smallvec::SmallVec;

use super::Cx;
use super::store_op::{ChangeId, StoreOp};
use super::track::{F, Grant, KeyId, Op, Stamp, Tracker, What, value_hash};

/// Rivals remembered for one write, and grants looked at for more.
const RIVALS: usize = 80;
const LOOK: u32 = 4096;
/// Suspect writes remembered in all.
const SUSPECTS: usize = 4096;

/// A write of `a` landed after `b`'s grant, which came after `a`'s promised end.
pub struct Crossing {
    pub a: Grant,
    pub b: Arc<Grant>,
    /// Invocation of the write, and its completion.
    pub op: Stamp,
    pub done: Option<Stamp>,
}

struct Suspect {
    change: ChangeId,
    a: Grant,
    op: Stamp,
    done: Option<Stamp>,
    rivals: Vec<Arc<Grant>>,
    /// Later grants that were looked at.
    looked: u32,
    /// The rival that the log has shown first.
    shown: Option<Arc<Grant>>,
    told: bool,
}

type Rival = (u32, Arc<Grant>);
type Suspects = SmallVec<[u32; 2]>;

/// Collects suspects from the history, then meets them in the log.
#[derive(Default)]
pub struct Crossings {
    suspects: Vec<Suspect>,
    /// Writes of unknown outcome, which may land at any later time, that lack rivals still.
    afloat: HashMap<KeyId, Vec<u32>>,
    /// What the log's lines are looked up in, once the history has ended.
    index: Option<Index>,
}

#[derive(Default)]
struct Index {
    writes: HashMap<(KeyId, ChangeId), Suspects>,
    rivals: HashMap<(KeyId, Option<u64>), Vec<Rival>>,
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
        if let Some(b) = cx.seen.granted.and_then(|id| cx.track.grant(id))
            && let Some(afloat) = self.afloat.get_mut(&b.key)
        {
            let b = Arc::new(b.clone());
            afloat.retain(|n| {
                let s = &mut self.suspects[*n as usize];
                s.looked += 1;
                if rivals(&s.a, &b) {
                    s.rivals.push(b.clone());
                }
                s.rivals.len() < RIVALS && s.looked < LOOK
            });
        }
    }

    fn consider(&mut self, track: &Tracker, op: &Op, done: Option<Stamp>, afloat: bool) {
        if !matches!(op.f, F::Write | F::Add) || self.suspects.len() >= SUSPECTS {
            return;
        }
        let Some(a) = op.grant.and_then(|id| track.grant(id)) else {
            return;
        };
        // Without a promised end nobody is granted the lock after it.
        let Some(promised) = a.promised else { return };
        let late = afloat || done.is_none_or(|d| d.time > promised);
        // Where the stamps alone show that it acted late, the log adds nothing.
        if !late || op.act.time > promised {
            return;
        }
        let rivals: Vec<Arc<Grant>> = track
            .grants_of(op.key)
            .filter(|b| rivals(a, b))
            .take(RIVALS)
            .map(|b| Arc::new(b.clone()))
            .collect();
        if rivals.is_empty() && !afloat {
            return;
        }
        if afloat {
            let n = self.suspects.len() as u32;
            self.afloat.entry(op.key).or_default().push(n);
        }
        self.suspects.push(Suspect {
            change: (op.f, value_hash(&op.value)),
            a: a.clone(),
            op: op.invoke,
            done: if afloat { None } else { done },
            rivals,
            looked: 0,
            shown: None,
            told: false,
        });
    }

    /// The next line of the log; a crossing if this line shows one.
    pub fn store(&mut self, track: &Tracker, line: &StoreOp) -> Option<Crossing> {
        if self.index.is_none() {
            let open: Vec<Op> = track.open_ops().cloned().collect();
            for op in open {
                self.consider(track, &op, None, true);
            }
        }
        let index = self
            .index
            .get_or_insert_with(|| indexed(&mut self.suspects));
        if self.suspects.is_empty() {
            return None;
        }
        let key: KeyId = track.find_key(&line.key)?;
        let mut found = None;
        if matches!(line.f, F::Write | F::Add)
            && let Some(writes) = index.writes.get(&(key, line.change()))
        {
            for n in writes {
                let s = &mut self.suspects[*n as usize];
                if !s.told
                    && let Some(b) = s.shown.clone()
                {
                    s.told = true;
                    found = Some(Crossing {
                        a: s.a.clone(),
                        b,
                        op: s.op,
                        done: s.done,
                    });
                }
            }
        }
        // A rival that was seen once need not be looked for again.
        if let Some(rivals) = index.rivals.get_mut(&(key, line.fence)) {
            let change = line.change();
            rivals.retain(|(n, b)| {
                let s = &mut self.suspects[*n as usize];
                let its_own = s.change == change && matches!(line.f, F::Write | F::Add);
                if s.shown.is_none() && !its_own && under(b, line) {
                    s.shown = Some(b.clone());
                }
                s.shown.is_none()
            });
        }
        found
    }
}

fn indexed(suspects: &mut [Suspect]) -> Index {
    let mut index = Index::default();
    for (n, s) in (0..).zip(suspects) {
        let key = s.a.key;
        index.writes.entry((key, s.change)).or_default().push(n);
        for b in std::mem::take(&mut s.rivals) {
            let slot = (key, b.fence);
            index.rivals.entry(slot).or_default().push((n, b));
        }
    }
    index
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
