//! Where a search found nothing possible: a small window that shows why.
//!
//! The history up to the stuck return is illegal. If no known operation was
//! pending at some moment shortly before, the states that are possible there
//! stand for all that came before, and the window starts there. Reads that the
//! contradiction does not need are dropped: without a read a history allows no
//! less, so a window that stays illegal without it is evidence as good.

use std::time::{Duration, Instant};

use crate::model::Model;
use crate::ops::{NEVER, Timed};
use crate::search::{self, Bounds, Found};

use super::Evidence;
use super::tell::Tell;

/// Effort of shrinking.
const TIME: Duration = Duration::from_millis(700);
const STATES: u64 = 200_000;
/// Windows larger than this are not shrunk by whole searches.
const LARGE: usize = 3_000;

struct Shrink<'a, M: Model> {
    model: &'a M,
    ops: &'a [Timed<M::Op>],
    starts: Vec<M::State>,
    stuck: u64,
    until: Instant,
}

impl<M: Model> Shrink<'_, M> {
    /// Whether these operations alone are illegal from the starts. What had not
    /// returned by the stuck return may take effect or not.
    fn illegal(&self, at: &[usize]) -> bool {
        let cut = |&i: &usize| {
            let o = &self.ops[i];
            Timed {
                ret: if o.ret > self.stuck { NEVER } else { o.ret },
                ..o.clone()
            }
        };
        let ops: Vec<Timed<M::Op>> = at.iter().map(cut).collect();
        let bounds = Bounds {
            deadline: Some(self.until),
            memory: 256 << 20,
            max_states: STATES,
            parallel: false,
        };
        matches!(
            search::run(self.model, &ops, &self.starts, bounds).found,
            Found::Stuck { .. }
        )
    }

    /// Drops reads, in halves, then quarters, and so on.
    fn without_reads(&self, mut at: Vec<usize>) -> Vec<usize> {
        let keep =
            |&i: &usize| !self.model.is_read(&self.ops[i].op) || self.ops[i].ret == self.stuck;
        let mut reads: Vec<usize> = at.iter().copied().filter(|i| !keep(i)).collect();
        let mut size = reads.len();
        while size > 0 && Instant::now() < self.until {
            for part in reads.clone().chunks(size) {
                let fewer: Vec<usize> = at.iter().copied().filter(|i| !part.contains(i)).collect();
                if Instant::now() < self.until && self.illegal(&fewer) {
                    at = fewer;
                    reads.retain(|i| !part.contains(i));
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
        at
    }
}

/// Evidence for a search that got stuck at the return of `op`.
pub(crate) fn evidence<M: Model>(
    model: &M,
    ops: &[Timed<M::Op>],
    op: usize,
    cut: Option<(u64, Vec<M::State>)>,
    tell: &dyn Tell<M::Op>,
) -> Evidence {
    let stuck = ops[op].ret;
    let summary = format!(
        "no order explains the answer of `{}` ({}): all before it is linearizable",
        tell.call(&ops[op].op),
        tell.answer(&ops[op].op)
    );
    let initial = vec![model.initial()];
    let (from, starts) = cut.unwrap_or((0, initial.clone()));
    let matters = |o: &Timed<M::Op>, from: u64| {
        o.call < stuck && (o.call >= from || o.is_optional() && !model.is_read(&o.op))
    };
    let inside = |from: u64| {
        (0..ops.len())
            .filter(|&i| matters(&ops[i], from))
            .collect::<Vec<_>>()
    };
    let until = Instant::now() + TIME;
    let mut shrink = Shrink {
        model,
        ops,
        starts,
        stuck,
        until,
    };
    let mut at = inside(from);
    let mut proven = at.len() <= LARGE && shrink.illegal(&at);
    if !proven && from > 0 {
        (shrink.starts, at) = (initial, inside(0));
        proven = at.len() <= LARGE;
    }
    if proven {
        at = shrink.without_reads(at);
    }
    let begins = shrink.starts.len() != 1 || shrink.starts[0] != model.initial();
    let start = match begins {
        true => shrink
            .starts
            .iter()
            .take(16)
            .map(|s| format!("{s:?}"))
            .collect(),
        false => Vec::new(),
    };
    Evidence {
        class: "no-order",
        summary,
        ops: at,
        start,
        cycle: Vec::new(),
        stuck: Some(stuck),
    }
}
