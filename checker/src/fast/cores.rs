//! Owner-aware locks: mutex, shared/exclusive, weighted semaphore.
//!
//! Sound and complete for the holds that `sessions` reads: every hold lasts at
//! least over its core, so cores that together weigh more than the capacity at
//! an instant are a violation; and if they fit, linearizing each acquire at its
//! ok and each release at its invoke is a legal order of them all, since those
//! stamps are distinct. A ghost (an unknown acquire that was proven by its
//! release) or an "is free" read needs one instant of its interval with enough
//! room; it takes none from others, for it can be shorter than any gap.
//!
//! A busy try (capacity 1) needs one instant at which somebody holds. With each
//! hold stretched as far as its calls allow, the lock is free for sure only
//! from the ok of a release to the invoke of the next acquire; a busy try that
//! lies wholly inside such a span is a violation, and if none does, the
//! stretched holds satisfy all. Where unknown acquires, ghosts or "free"
//! answers pull the other way, the search decides.

use super::Fast;
use super::sessions::{self, Ghost, Hold, Holds};
use crate::models::lock::{Answer, LockCall, LockOp};
use crate::ops::{NEVER, Timed};

/// Load after each stamp at which it changes, with range minimum.
struct Load {
    stamps: Vec<u64>,
    /// Iterative segment tree over the loads; leaf `i` is the load from stamp `i` on.
    tree: Vec<u64>,
}

impl Load {
    fn least(&self, from: u64, to: u64) -> u64 {
        // Instants in (from, to): from the leaf that `from` falls in to the last one that starts below `to`.
        let n = self.stamps.len() + 1;
        let (mut l, mut r) = (
            self.stamps.partition_point(|&s| s <= from) + n,
            self.stamps.partition_point(|&s| s < to) + n + 1,
        );
        let mut least = u64::MAX;
        while l < r {
            if l & 1 == 1 {
                least = least.min(self.tree[l]);
                l += 1;
            }
            if r & 1 == 1 {
                r -= 1;
                least = least.min(self.tree[r]);
            }
            l /= 2;
            r /= 2;
        }
        least
    }
}

/// Cores by stamp: stamp, is start, hold.
fn edges(holds: &[Hold]) -> Vec<(u64, bool, usize)> {
    let mut edges = Vec::with_capacity(2 * holds.len());
    for (i, h) in holds.iter().enumerate() {
        edges.push((h.start, true, i));
        if h.end != NEVER {
            edges.push((h.end, false, i));
        }
    }
    edges.sort_unstable();
    edges
}

/// The heaviest of the active holds that together exceed the capacity.
fn crowd(
    ops: &[Timed<LockOp>],
    holds: &[Hold],
    active: &[usize],
    new: usize,
    capacity: u64,
) -> Fast {
    let weight = |h: usize| u64::from(ops[holds[h].acquire].op.weight);
    let mut others: Vec<usize> = active.iter().copied().filter(|&h| h != new).collect();
    others.sort_by_key(|&h| (std::cmp::Reverse(weight(h)), h));
    let (mut sum, mut chosen) = (weight(new), vec![new]);
    for h in others {
        if sum > capacity {
            break;
        }
        sum += weight(h);
        chosen.push(h);
    }
    let what = match chosen.len() {
        1 => "a grant is larger than the capacity".to_string(),
        2 => "two holds overlap that exclude each other".to_string(),
        n => {
            format!("{n} holds overlap that together weigh {sum}, above the capacity of {capacity}")
        }
    };
    let ops = chosen
        .iter()
        .flat_map(|&h| [Some(holds[h].acquire), holds[h].release])
        .flatten()
        .collect();
    Fast::violated("overlapping-holds", what, ops)
}

/// Sweeps the cores; `Ok` gives the load if something asks for it.
fn sweep(ops: &[Timed<LockOp>], holds: &[Hold], capacity: u64, loads: bool) -> Result<Load, Fast> {
    let edges = edges(holds);
    let mut load = 0u64;
    let mut active: Vec<usize> = Vec::new();
    let mut values = Vec::with_capacity(if loads { edges.len() + 1 } else { 0 });
    if loads {
        values.push(0);
    }
    for &(_, start, h) in &edges {
        let w = u64::from(ops[holds[h].acquire].op.weight);
        if start {
            load += w;
            active.push(h);
            if load > capacity {
                return Err(crowd(ops, holds, &active, h, capacity));
            }
        } else {
            load -= w;
            if let Some(at) = active.iter().rposition(|&a| a == h) {
                active.swap_remove(at);
            }
        }
        if loads {
            values.push(load);
        }
    }
    let mut tree = Vec::new();
    if loads {
        let n = values.len();
        tree = vec![u64::MAX; n];
        tree.extend(values);
        for i in (1..n).rev() {
            tree[i] = tree[2 * i].min(tree[2 * i + 1]);
        }
    }
    Ok(Load {
        stamps: if loads {
            edges.iter().map(|e| e.0).collect()
        } else {
            Vec::new()
        },
        tree,
    })
}

/// Holds whose cores cover some of (from, to), at most a few of them.
fn covering(holds: &[Hold], from: u64, to: u64) -> Vec<usize> {
    let cover = holds.iter().filter(|h| h.start < to && h.end > from);
    cover
        .take(8)
        .flat_map(|h| [Some(h.acquire), h.release])
        .flatten()
        .collect()
}

pub(crate) fn no_room(holds: &[Hold], ghost: &Ghost) -> Fast {
    let mut ops = vec![ghost.acquire, ghost.release];
    ops.extend(covering(holds, ghost.from, ghost.to));
    let what = "a release proves an unknown grant for which other holds leave no room";
    Fast::violated("ghost-without-room", what, ops)
}

/// The rooms that ghosts and "is free" reads need.
fn rooms(ops: &[Timed<LockOp>], found: &Holds, capacity: u64) -> Option<Fast> {
    let load = match sweep(
        ops,
        &found.holds,
        capacity,
        !found.ghosts.is_empty() || !found.free.is_empty(),
    ) {
        Ok(load) => load,
        Err(verdict) => return Some(verdict),
    };
    for g in &found.ghosts {
        if load.least(g.from, g.to) + u64::from(ops[g.acquire].op.weight) > capacity {
            return Some(no_room(&found.holds, g));
        }
    }
    for &i in &found.free {
        if load.least(ops[i].call, ops[i].ret) > 0 {
            let mut at = vec![i];
            at.extend(covering(&found.holds, ops[i].call, ops[i].ret));
            return Some(Fast::violated(
                "free-while-held",
                "the lock was seen free while it was held throughout",
                at,
            ));
        }
    }
    None
}

/// Busy tries and "is held" reads under capacity 1; cores are known to fit.
pub(crate) fn busy(ops: &[Timed<LockOp>], found: &Holds) -> Fast {
    if found.held.is_empty() {
        return Fast::Linearizable;
    }
    let mut holds: Vec<&Hold> = found.holds.iter().collect();
    holds.sort_unstable_by_key(|h| h.start);
    let points = holds.iter().any(|h| h.is_point());
    let opposed =
        points || !(found.ghosts.is_empty() && found.free.is_empty() && found.denied.is_empty());
    let mut declined = false;
    for &i in &found.held {
        let (call, ret) = (ops[i].call, ops[i].ret);
        let next = holds.partition_point(|h| h.start < ret);
        let before = next.checked_sub(1).map(|p| holds[p]);
        if before.is_some_and(|h| h.end > call) {
            continue;
        }
        declined |= opposed;
        let after = holds.get(next);
        let freed = before.map_or(0, |h| h.latest);
        let surely_free =
            (before.is_none() || freed < call) && after.is_none_or(|h| ret < ops[h.acquire].call);
        if !surely_free {
            continue;
        }
        let ghosts = found.ghosts.iter().any(|g| ops[g.acquire].call < ret);
        if ghosts || found.spare.is_some_and(|c| c < ret) {
            declined = true;
            continue;
        }
        let mut at = vec![i];
        at.extend(
            before
                .iter()
                .flat_map(|h| [Some(h.acquire), h.release])
                .flatten(),
        );
        return Fast::violated(
            "busy-while-free",
            "the lock was said to be held while nobody can have held it",
            at,
        );
    }
    if declined {
        Fast::Declined("busy answers, and unknown grants or `free` answers beside them")
    } else {
        Fast::Linearizable
    }
}

/// A hold that lasts for an instant needs what a ghost needs.
fn points(found: &mut Holds) {
    let Holds { holds, ghosts, .. } = found;
    holds.retain(|h| {
        let ghost = h.release.map(|release| Ghost {
            acquire: h.acquire,
            release,
            from: h.end,
            to: h.start,
        });
        ghosts.extend(ghost.filter(|_| h.is_point()));
        !h.is_point()
    });
}

/// Owner-aware lock of some capacity (1: mutex).
pub(crate) fn check(ops: &[Timed<LockOp>], capacity: u32) -> Fast {
    let rules = sessions::Rules {
        leased: false,
        by_fence: false,
    };
    sessions::decide(ops, rules, |found| {
        points(found);
        finish(ops, found, capacity)
    })
}

/// Decides from the holds: also for outermost re-entrant holds.
pub(crate) fn finish(ops: &[Timed<LockOp>], found: &Holds, capacity: u32) -> Fast {
    if let Some(verdict) = rooms(ops, found, u64::from(capacity)) {
        return verdict;
    }
    let too_large = |o: &Timed<LockOp>| {
        o.op.call == LockCall::Acquire && o.op.answer == Answer::No && o.op.weight > capacity
    };
    if found.held.is_empty() || (capacity == 1 && !ops.iter().any(too_large)) {
        return busy(ops, found);
    }
    Fast::Declined("busy and held answers of a shared lock or semaphore need the search")
}
