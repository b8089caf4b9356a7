//! Places the store's serial log on the run's time axis.
//!
//! The store's clock is not used. Each entry is put within the interval of the
//! operation it belongs to, as late as the store's order allows: a client that was
//! paused, or a request that was held up, waited before the store saw it, while an
//! answer follows at once. An operation that was never answered is put as early
//! as the order allows.

use std::collections::HashMap;

use super::{Answer, Op, StoreMark};
use crate::load::store::StoreEntry;

/// Takes the store's entries for one lock, in order, and keeps those that
/// belong to operations of the timeline.
pub struct Placer<'a> {
    waiting: HashMap<(String, String, Option<u64>), Vec<&'a Op>>,
    /// With the earliest and the latest instant that the interval allows.
    marks: Vec<(StoreMark, i64, i64)>,
    latest: i64,
}

impl<'a> Placer<'a> {
    pub fn new(ops: impl Iterator<Item = &'a Op>) -> Placer<'a> {
        let mut ops: Vec<&Op> = ops.collect();
        ops.sort_by_key(|op| std::cmp::Reverse(op.invoked));
        let mut waiting: HashMap<_, Vec<&Op>> = HashMap::new();
        for op in ops {
            let name = (op.f.to_string(), op.owner.clone(), op.fence);
            waiting.entry(name).or_default().push(op);
        }
        Placer {
            waiting,
            marks: Vec::new(),
            latest: i64::MIN,
        }
    }

    pub fn push(&mut self, entry: &StoreEntry) {
        let owner = entry.owner.clone().unwrap_or_default();
        let name = (entry.op.clone(), owner, entry.fence);
        let Some(ops) = self.waiting.get_mut(&name) else {
            return;
        };
        // Latest first in the list, so that the earliest match is at its end.
        let fits = |op: &&Op| entry.op == "read" || op.value == entry.value;
        let Some(at) = ops.iter().rposition(fits) else {
            return;
        };
        let op = ops.remove(at);
        let until = op.answered.map_or(i64::MAX, |a| a.time);
        let early = self.latest.max(op.invoked.time).min(until);
        self.latest = self.latest.max(early);
        let mark = StoreMark::entry_of(entry, early, op.invoked.index);
        self.marks.push((mark, early, until));
    }

    pub fn finish(self) -> Vec<StoreMark> {
        let mut next = i64::MAX;
        let mut marks = Vec::with_capacity(self.marks.len());
        for (mut mark, early, until) in self.marks.into_iter().rev() {
            if until < i64::MAX {
                mark.time = until.min(next).max(early);
            }
            next = next.min(mark.time);
            marks.push(mark);
        }
        marks.reverse();
        marks
    }
}

/// Stand-in for a missing log: what clients were answered, at the instant of
/// the answer. Which of two overlapping writes came first is then a guess, so
/// no highest fence is given.
pub fn from_answers<'a>(ops: impl Iterator<Item = &'a Op>) -> Vec<StoreMark> {
    let mut marks: Vec<StoreMark> = ops
        .filter_map(|op| {
            let accepted = match &op.answer {
                Answer::Accepted => true,
                Answer::Refused(error) if error == "stale-fence" => false,
                Answer::Refused(_) | Answer::Unknown => return None,
            };
            Some(StoreMark {
                seq: op.invoked.index,
                op: op.f.to_string(),
                fence: op.fence,
                accepted,
                highest: None,
                time: op.answered?.time,
                index: op.invoked.index,
            })
        })
        .collect();
    marks.sort_by_key(|m| m.time);
    marks
}
