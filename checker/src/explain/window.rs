//! Where a search found nothing possible: a small window that shows why.
//!
//! The history up to the stuck return is illegal. If no known operation was
//! pending at some moment shortly before, the states that are possible there
//! stand for all that came before, and the window starts there. Reads that the
//! contradiction does not need are dropped: without a read a history allows no
//! less, so a window that stays illegal without it is evidence as good.
//! Operations of unknown outcome from before the window stay in it: they may
//! take effect late.

use std::time::Instant;

use hashbrown::HashMap;

use crate::model::Model;
use crate::ops::{NEVER, Timed};
use crate::search::{self, Bounds, Found};

use super::Evidence;
use super::tell::{Tell, TellState};

/// Configurations of one search of a window, and, with a charge for each operation looked at, of all. Bounded by
/// these and not by time, so that the evidence is the same on every machine.
const STATES: u64 = 200_000;
const EFFORT: u64 = 2_000_000;
/// Windows larger than this are not searched again.
const LARGE: usize = 3_000;

/// A search got stuck: at the return of the first of these operations, or where only reads to come ruled out
/// everything, of one of the others at the latest.
pub(crate) struct Stuck<'a, S> {
    pub ops: &'a [usize],
    /// No known operation was open at this stamp, and these states were possible.
    pub cut: Option<(u64, Vec<S>)>,
}

struct Shrink<'a, M: Model> {
    model: &'a M,
    ops: &'a [Timed<M::Op>],
    effort: u64,
    /// The user's time limit.
    deadline: Option<Instant>,
}

/// Operations that are illegal from some states, up to a return.
struct Window<'s, S> {
    at: Vec<usize>,
    starts: &'s [S],
    stuck: u64,
}

impl<M: Model> Shrink<'_, M> {
    /// Whether these operations alone are illegal from the starts. What had not
    /// returned by the stuck return may take effect or not.
    fn illegal(&mut self, at: &[usize], starts: &[M::State], stuck: u64) -> bool {
        if at.len() > LARGE || self.effort == 0 {
            return false;
        }
        let cut = |&i: &usize| {
            let o = &self.ops[i];
            Timed {
                ret: if o.ret > stuck { NEVER } else { o.ret },
                ..o.clone()
            }
        };
        let ops: Vec<Timed<M::Op>> = at.iter().map(cut).collect();
        let bounds = Bounds {
            deadline: self.deadline,
            memory: 256 << 20,
            max_states: STATES.min(self.effort),
            parallel: false,
        };
        let searched = search::run(self.model, &ops, starts, bounds);
        self.effort = self
            .effort
            .saturating_sub(searched.states + ops.len() as u64);
        matches!(searched.found, Found::Stuck { .. })
    }

    /// What the contradiction at `stuck` can rest on, if it starts at `from`.
    fn inside(&self, from: u64, stuck: u64) -> Vec<usize> {
        let matters = |o: &Timed<M::Op>| {
            o.call < stuck && (o.call >= from || o.is_optional() && !self.model.is_read(&o.op))
        };
        (0..self.ops.len())
            .filter(|&i| matters(&self.ops[i]))
            .collect()
    }

    /// Whether these are illegal with everything that was called before `from`, from the object's start.
    fn whole_illegal(&mut self, at: &[usize], from: u64, stuck: u64) -> bool {
        let before = self.ops.partition_point(|o| o.call < from);
        let inside = at.iter().copied().filter(|i| *i >= before);
        let whole: Vec<usize> = (0..before).chain(inside).collect();
        self.illegal(&whole, &[self.model.initial()], stuck)
    }

    /// The first of these returns by which nothing is possible from the starts. Reads up to the last of them may have
    /// ruled out other states before `from`: up to an earlier one that must be shown.
    fn first<'s>(
        &mut self,
        from: Option<u64>,
        starts: &'s [M::State],
        stuck: &[usize],
    ) -> Option<Window<'s, M::State>> {
        stuck.iter().find_map(|&op| {
            let end = self.ops[op].ret;
            let at = self.inside(from.unwrap_or(0), end);
            let ok = self.illegal(&at, starts, end)
                && from
                    .filter(|_| stuck.last() != Some(&op))
                    .is_none_or(|from| self.whole_illegal(&at, from, end));
            ok.then_some(Window {
                at,
                starts,
                stuck: end,
            })
        })
    }

    /// Reads after `from` that may have ruled out states before it.
    fn guiding(&self, from: u64) -> Vec<usize> {
        let coming = |&i: &usize| {
            let o = &self.ops[i];
            o.ret > from && !o.is_optional() && self.model.is_read(&o.op)
        };
        let mut reads: Vec<usize> = (0..self.ops.len()).filter(coming).collect();
        reads.sort_unstable_by_key(|&i| self.ops[i].ret);
        let mut of_part: HashMap<u32, usize> = HashMap::new();
        reads.retain(|&i| {
            self.model.part(&self.ops[i].op).is_some_and(|part| {
                let n = of_part.entry(part).or_default();
                *n += 1;
                *n <= search::DEEP
            })
        });
        reads
    }

    /// Drops reads, in halves, then quarters, and so on. One that may have ruled out states before the window goes
    /// only if the whole history is illegal without it.
    fn without_reads(&mut self, window: &mut Window<M::State>, from: Option<u64>) {
        let ops = self.ops;
        let read = |&i: &usize| self.model.is_read(&ops[i].op) && ops[i].ret != window.stuck;
        let guiding = from.map(|f| self.guiding(f)).unwrap_or_default();
        let mut reads: Vec<usize> = window.at.iter().copied().filter(read).collect();
        let mut size = reads.len();
        while size > 0 {
            for part in reads.clone().chunks(size) {
                let rest = window.at.iter().copied();
                let fewer: Vec<usize> = rest.filter(|i| !part.contains(i)).collect();
                if !self.illegal(&fewer, window.starts, window.stuck) {
                    continue;
                }
                if part.iter().any(|i| guiding.contains(i))
                    && from.is_some_and(|f| !self.whole_illegal(&fewer, f, window.stuck))
                {
                    continue;
                }
                window.at = fewer;
                reads.retain(|i| !part.contains(i));
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
    }
}

/// Evidence for a search that got stuck.
pub(crate) fn evidence<M: Model>(
    model: &M,
    ops: &[Timed<M::Op>],
    found: &Stuck<M::State>,
    deadline: Option<Instant>,
    tell: &dyn Tell<M::Op>,
    states: &dyn TellState<M::State>,
) -> Evidence {
    let mut stuck = found.ops.to_vec();
    stuck.sort_unstable_by_key(|&i| ops[i].ret);
    stuck.dedup();
    let initial = [model.initial()];
    let mut shrink = Shrink {
        model,
        ops,
        effort: EFFORT,
        deadline,
    };
    let mut from = found.cut.as_ref().map(|c| c.0);
    let mut window = match &found.cut {
        Some((from, starts)) => shrink.first(Some(*from), starts, &stuck),
        None => None,
    };
    if window.is_none() {
        from = None;
        window = shrink.first(None, &initial, &stuck);
    }
    // Too large to be searched again: everything, which the search has shown.
    let last = stuck.last().map_or(NEVER, |&i| ops[i].ret);
    let mut window = window.unwrap_or_else(|| Window {
        at: shrink.inside(0, last),
        starts: &initial,
        stuck: last,
    });
    shrink.without_reads(&mut window, from);
    let answered = ops.iter().find(|o| o.ret == window.stuck);
    let summary = match answered {
        Some(o) => format!(
            "no order explains the answer of `{}` ({}): all before it is linearizable",
            tell.call(&o.op),
            tell.answer(&o.op)
        ),
        None => "no order explains the answers".to_owned(),
    };
    let start = window.starts.iter().map(|s| states.state(s));
    Evidence {
        class: "no-order",
        summary,
        ops: window.at,
        start: start.filter(|_| from.is_some()).collect(),
        from,
        cycle: Vec::new(),
        stuck: Some(window.stuck),
    }
}
