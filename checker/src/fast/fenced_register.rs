//! Fenced register whose written values are distinct.
//!
//! Accepted fences never fall, so clusters (see `zones`) come in order of
//! fence, the initial value's before all. Clusters of one fence are ordered
//! among themselves as for a plain register, and no cluster of a lower fence
//! may have an operation that must follow one of a higher: no u, v with
//! fence_u < fence_v and f_v < s_u (a prefix maximum of s finds one). Given
//! both, the orders within the fences, one after the other, are legal.
//!
//! A write that was rejected with fence t says that a fence above t had been
//! accepted before it returned (fences stay, so nothing else matters). The
//! earliest instant at which fence T can be the highest is
//! E(T) = max(greatest s of all lower fences, least call of a write whose
//! cluster can come first in T); c can come first if no other cluster of T has
//! f < s_c. The rejection is possible iff E(T) is before its return for some
//! T > t: starting T as early as that delays nothing, since what is lower must
//! have been over by then anyhow. An unknown write that nobody read may serve
//! as the first of its fence; otherwise it is left out.

use std::collections::BTreeMap;

use super::Fast;
use super::zones::{self, Cluster, Clusters};
use crate::models::register::{RegCall, RegOp, Took};
use crate::ops::Timed;

/// Clusters by fence, in order; fence `None` is the initial value.
type ByFence<'a> = BTreeMap<Option<u64>, Vec<&'a Cluster>>;

fn across(groups: &ByFence) -> Result<(), Fast> {
    let mut latest: Option<&Cluster> = None;
    for group in groups.values() {
        if let Some(u) = latest
            && let Some(v) = group.iter().find(|v| v.first < u.last)
        {
            let mut ops = u.witness();
            ops.extend(v.witness());
            let what = format!(
                "fence {} was accepted after the higher fence {}",
                u.fence, v.fence
            );
            return Err(Fast::violated("stale-fence-accepted", what, ops));
        }
        let top = group.iter().copied().max_by_key(|c| c.last);
        if top.map_or(0, |c| c.last) > latest.map_or(0, |c| c.last) {
            latest = top;
        }
    }
    Ok(())
}

/// Earliest stamp at which a fence above each can have been the highest:
/// (fence, least E of this fence and all above), by fence.
fn earliest(ops: &[Timed<RegOp>], groups: &ByFence, unread: &[usize]) -> Vec<(u64, u64)> {
    let mut optional: BTreeMap<u64, u64> = BTreeMap::new();
    for &w in unread {
        let call = ops[w].call + 1;
        let least = optional.entry(ops[w].op.fence).or_insert(call);
        *least = call.min(*least);
    }
    let mut fences: Vec<u64> = groups
        .keys()
        .copied()
        .flatten()
        .chain(optional.keys().copied())
        .collect();
    fences.sort_unstable();
    fences.dedup();
    let mut lower = groups
        .get(&None)
        .into_iter()
        .flatten()
        .map(|c| c.last)
        .max()
        .unwrap_or(0);
    let mut out = Vec::with_capacity(fences.len());
    for fence in fences {
        let group = groups.get(&Some(fence)).map_or(&[][..], |g| g.as_slice());
        let mut firsts: Vec<u64> = group.iter().map(|c| c.first).collect();
        firsts.sort_unstable();
        let mut start = u64::MAX;
        for c in group {
            let others = if firsts[0] == c.first {
                firsts.get(1)
            } else {
                firsts.first()
            };
            if others.is_none_or(|&f| c.last <= f)
                && let Some(w) = c.write
            {
                start = start.min(ops[w].call + 1);
            }
        }
        if let Some(&call) = optional.get(&fence)
            && firsts.first().is_none_or(|&f| call <= f)
        {
            start = start.min(call);
        }
        out.push((fence, start.max(lower)));
        lower = group.iter().map(|c| c.last).fold(lower, u64::max);
    }
    for i in (1..out.len()).rev() {
        out[i - 1].1 = out[i - 1].1.min(out[i].1);
    }
    out
}

/// A rejection that no higher fence explains.
fn rejections(ops: &[Timed<RegOp>], groups: &ByFence, earliest: &[(u64, u64)]) -> Result<(), Fast> {
    for (i, o) in ops
        .iter()
        .enumerate()
        .filter(|(_, o)| o.op.took == Took::No)
    {
        let above = earliest.partition_point(|e| e.0 <= o.op.fence);
        if earliest.get(above).is_some_and(|e| e.1 < o.ret + 1) {
            continue;
        }
        let mut at = vec![i];
        // What keeps the next higher fence from being first in time.
        let higher = groups
            .range((
                std::ops::Bound::Excluded(Some(o.op.fence)),
                std::ops::Bound::Unbounded,
            ))
            .next();
        at.extend(
            higher
                .into_iter()
                .flat_map(|(_, g)| g.iter().take(3))
                .flat_map(|c| c.witness()),
        );
        let lower = groups
            .range(..=Some(o.op.fence))
            .flat_map(|(_, g)| g)
            .max_by_key(|c| c.last);
        at.extend(lower.into_iter().flat_map(|c| c.witness()));
        let what = format!(
            "a write with fence {} was rejected before any higher fence can have been accepted",
            o.op.fence
        );
        return Err(Fast::violated("false-rejection", what, at));
    }
    Ok(())
}

fn decide(ops: &[Timed<RegOp>], clusters: &Clusters) -> Result<(), Fast> {
    let mut groups: ByFence = BTreeMap::new();
    for c in &clusters.read_or_known {
        groups.entry(c.write.map(|_| c.fence)).or_default().push(c);
    }
    for group in groups.values() {
        zones::ordered(group.iter().copied())?;
    }
    across(&groups)?;
    if ops.iter().any(|o| o.op.took == Took::No) {
        rejections(ops, &groups, &earliest(ops, &groups, &clusters.unread))?;
    }
    Ok(())
}

pub(crate) fn check(ops: &[Timed<RegOp>], initial: u32, raise: bool) -> Fast {
    if raise && ops.iter().any(|o| o.op.call == RegCall::Read) {
        return Fast::Declined("reads that raise the fence need the search");
    }
    match zones::clusters(ops, initial).and_then(|c| decide(ops, &c)) {
        Ok(()) => Fast::Linearizable,
        Err(verdict) => zones::with_cycle(verdict, ops, initial),
    }
}
