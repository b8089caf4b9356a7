//! Fenced mutex, strict or with leases that may expire.
//!
//! Fences rise in the order of grants, so the order of all known grants is
//! their order by fence: a total order that is right or wrong. A total order of
//! intervals can be linearized iff no operation returned before one that must
//! precede it was called; the running maximum of what must precede says so in
//! one pass. Strictly, what must precede grant j is every lower grant and its
//! release (no release: then nothing may follow). With leases it is every lower
//! grant, and the release of one only where that release found it held; a
//! release that says "not held" is then always possible, except inside a hold
//! that is later found held.
//!
//! A ghost (see `sessions`) takes some fence that nobody was told, so it has to
//! lie between two neighbours k, k+1 of the order: at an instant after
//! everything up to k was called and before anything from k+1 on returned, and
//! there are fence(k+1) − fence(k) − 1 places. Both bounds rise with k, so the
//! gaps that a ghost can use are consecutive, and giving each gap's places to
//! the ghosts that run out of gaps first finds a complete assignment if there
//! is one (Glover 1967). Two ghosts whose assignment crosses real time can be
//! swapped, as both gaps then suit both. The unknown grant takes the least
//! fence left, which allows most.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::sessions::{self, Ghost, Hold, Holds, Rules};
use super::{Fast, cores};
use crate::models::lock::{Answer, LockCall, LockOp};
use crate::ops::Timed;

fn fence(ops: &[Timed<LockOp>], h: &Hold) -> u64 {
    ops[h.acquire].op.fence.unwrap_or(0)
}

fn pair(ops: &[Timed<LockOp>], earlier: &Hold, later: &Hold) -> Fast {
    let (fa, fb) = (fence(ops, earlier), fence(ops, later));
    let mut at = vec![earlier.acquire, later.acquire];
    at.extend(earlier.release);
    if fa == fb {
        return Fast::violated(
            "same-fence",
            format!("fence {fa} was given to two grants"),
            at,
        );
    }
    if ops[later.acquire].ret < ops[earlier.acquire].call {
        let what = format!(
            "fence {fb} was granted before the grant with the lower fence {fa} was asked for"
        );
        return Fast::violated("inverted-pair", what, vec![earlier.acquire, later.acquire]);
    }
    at.extend(later.release);
    let what = format!("the hold with fence {fa} and the one with fence {fb} overlap");
    Fast::violated("overlapping-holds", what, at)
}

/// Checks the order by fence; gives the running maximum of what must precede.
fn in_order(ops: &[Timed<LockOp>], holds: &[Hold], leased: bool) -> Result<Vec<u64>, Fast> {
    let mut precede = Vec::with_capacity(holds.len());
    let (mut max, mut who) = (0, 0);
    for (k, h) in holds.iter().enumerate() {
        if k > 0 && fence(ops, &holds[k - 1]) == fence(ops, h) {
            return Err(pair(ops, &holds[k - 1], h));
        }
        if k > 0 && ops[h.acquire].ret < max {
            return Err(pair(ops, &holds[who], h));
        }
        // Of a point as of any hold: the latest call among its acquire and its release.
        let last = if leased && h.release.is_none() {
            ops[h.acquire].call
        } else {
            h.end
        };
        if k == 0 || last > max {
            (max, who) = (last, k);
        }
        precede.push(max);
    }
    Ok(precede)
}

/// Places of each gap: gap k lies before hold k, the last one after all.
fn place(ops: &[Timed<LockOp>], holds: &[Hold], precede: &[u64], ghosts: &[Ghost]) -> Fast {
    let n = holds.len();
    // Before anything from k on returned.
    let mut until = vec![u64::MAX; n + 1];
    for k in (0..n).rev() {
        until[k] = until[k + 1].min(ops[holds[k].acquire].ret);
    }
    let mut waiting: Vec<(usize, usize, usize)> = Vec::with_capacity(ghosts.len());
    for (g, ghost) in ghosts.iter().enumerate() {
        let first = until.partition_point(|&u| u <= ghost.from);
        let last = precede.partition_point(|&p| p < ghost.to);
        if first > last {
            return cores::no_room(holds, ghost);
        }
        waiting.push((first, last, g));
    }
    waiting.sort_unstable();
    let mut heap: BinaryHeap<Reverse<(usize, usize)>> = BinaryHeap::new();
    let (mut next, mut k) = (0, 0);
    loop {
        if heap.is_empty() {
            match waiting.get(next) {
                None => return Fast::Linearizable,
                Some(w) => k = k.max(w.0),
            }
        }
        while next < waiting.len() && waiting[next].0 <= k {
            heap.push(Reverse((waiting[next].1, next)));
            next += 1;
        }
        let mut room = match (k.checked_sub(1), holds.get(k)) {
            (_, None) => u64::MAX,
            (None, Some(h)) => fence(ops, h),
            (Some(b), Some(h)) => fence(ops, h) - fence(ops, &holds[b]) - 1,
        };
        while room > 0 && heap.pop().is_some() {
            room -= 1;
        }
        if let Some(&Reverse((last, _))) = heap.peek()
            && last <= k
        {
            return crowded(holds, ghosts, &waiting, last);
        }
        k += 1;
    }
}

/// Ghosts that together have no fence left: all that must lie in gaps up to `last`.
fn crowded(
    holds: &[Hold],
    ghosts: &[Ghost],
    waiting: &[(usize, usize, usize)],
    last: usize,
) -> Fast {
    let inside = || waiting.iter().filter(|w| w.1 <= last);
    let first = inside().map(|w| w.0).min().unwrap_or(0);
    let mut at: Vec<usize> = inside()
        .flat_map(|w| [ghosts[w.2].acquire, ghosts[w.2].release])
        .collect();
    for h in &holds[first.saturating_sub(1)..holds.len().min(last + 1)] {
        at.push(h.acquire);
        at.extend(h.release);
    }
    let what = "releases prove unknown grants for which the grants around them leave no fence";
    Fast::violated("ghost-without-fence", what, at)
}

/// Releases name fences: all, none, or a mix that the search must read.
fn by_fence(ops: &[Timed<LockOp>]) -> Option<bool> {
    let mut releases = ops
        .iter()
        .filter(|o| o.op.call == LockCall::Release)
        .map(|o| o.op.fence.is_some());
    let first = releases.next().unwrap_or(false);
    releases.all(|f| f == first).then_some(first)
}

/// Orders holds by fence and finishes: also for outermost re-entrant holds.
pub(crate) fn finish(ops: &[Timed<LockOp>], found: &mut Holds, leased: bool) -> Fast {
    found
        .holds
        .sort_unstable_by_key(|h| (fence(ops, h), h.start));
    let precede = match in_order(ops, &found.holds, leased) {
        Ok(p) => p,
        Err(verdict) => return verdict,
    };
    let placed = place(ops, &found.holds, &precede, &found.ghosts);
    if placed != Fast::Linearizable || leased {
        return placed;
    }
    if !found.free.is_empty() {
        return Fast::Declined("`free` answers of a fenced lock need the search");
    }
    cores::busy(ops, found)
}

pub(crate) fn check(ops: &[Timed<LockOp>], leased: bool) -> Fast {
    let Some(by_fence) = by_fence(ops) else {
        return Fast::Declined("some releases name a fence and some do not");
    };
    let rules = Rules { leased, by_fence };
    match sessions::decide(ops, rules, |found| finish(ops, found, leased)) {
        Fast::Violated(f)
            if by_fence && f.class == "release-without-grant" && may_be_ghost(ops, &f.ops) =>
        {
            Fast::Declined("a release names a fence that only an unknown acquire can have got")
        }
        verdict => verdict,
    }
}

/// Whether an unknown acquire of the same owner may explain a release.
fn may_be_ghost(ops: &[Timed<LockOp>], at: &[usize]) -> bool {
    at.iter().any(|&i| {
        let unknown =
            |o: &Timed<LockOp>| o.op.call == LockCall::Acquire && o.op.answer == Answer::Unknown;
        ops.iter()
            .any(|o| unknown(o) && o.op.owner == ops[i].op.owner)
    })
}
