//! Register whose written values are distinct (Gibbons & Korach 1997).
//!
//! Group each write with the reads of its value: a cluster. In any legal order
//! a cluster is contiguous. With f = least return and s = greatest call in it,
//! cluster u must come before v if f_u < s_v, for then some operation of u
//! precedes one of v. So two clusters with f_u < s_v and f_v < s_u are a
//! violation, as is a read that returned before its write was called, or that
//! saw what nobody wrote. If there is none of these, the clusters can be ordered:
//! call f < s a forward zone [f, s], s ≤ f a backward one [s, f]. Two forward
//! zones cannot overlap (that is f_u < s_v and f_v < s_u), and no backward zone
//! lies inside a forward one (the same two inequalities). So each backward zone
//! has an instant that no forward zone covers: put its whole cluster there, and
//! each forward cluster over its zone. Every operation of a cluster spans the
//! instant, or meets the zone, at which it is put, so this order of clusters
//! keeps real time. Within a cluster: the write, then the reads by call.
//!
//! The initial value is a cluster whose write returned before everything. An
//! unknown write that nobody read is left out; one that was read is a write
//! that returns at infinity, so that only its reads bound f.

use hashbrown::HashMap;

use super::{Fast, Finding};
use crate::explain::cycle::shortest;
use crate::models::register::{RegCall, RegOp, Took};
use crate::ops::Timed;

/// One value's write and reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cluster {
    pub value: u32,
    /// `None` for the initial value.
    pub write: Option<usize>,
    pub fence: u64,
    /// Least return and the operation that has it.
    pub first: u64,
    pub first_op: Option<usize>,
    /// Greatest call and the operation that has it.
    pub last: u64,
    pub last_op: Option<usize>,
}

impl Cluster {
    /// Operations that carry the evidence, with the write that explains them.
    pub fn witness(&self) -> Vec<usize> {
        let mut ops: Vec<usize> = [self.write, self.first_op, self.last_op]
            .into_iter()
            .flatten()
            .collect();
        ops.sort_unstable();
        ops.dedup();
        ops
    }
}

/// Clusters of a history, and the unknown writes that nobody read.
pub(crate) struct Clusters {
    pub read_or_known: Vec<Cluster>,
    pub unread: Vec<usize>,
}

/// Stamps move up by one: 0 is before everything.
fn up(stamp: u64) -> u64 {
    stamp.saturating_add(1)
}

/// Groups operations by value. `Err` where values repeat, or a read is wrong in itself.
pub(crate) fn clusters(ops: &[Timed<RegOp>], initial: u32) -> Result<Clusters, Fast> {
    // A compare-and-set writes too: without it, what it wrote comes from nowhere.
    if ops.iter().any(|o| o.op.call == RegCall::Cas) {
        return Err(Fast::Declined("compare-and-set needs the search"));
    }
    let mut by_value: HashMap<u32, Cluster, foldhash::fast::RandomState> =
        HashMap::with_capacity_and_hasher(ops.len() / 2, Default::default());
    let start = Cluster {
        value: initial,
        write: None,
        fence: 0,
        first: 0,
        first_op: None,
        last: 0,
        last_op: None,
    };
    by_value.insert(initial, start);
    for (i, o) in ops
        .iter()
        .enumerate()
        .filter(|(_, o)| o.op.call == RegCall::Write && o.op.took != Took::No)
    {
        let c = Cluster {
            value: o.op.a,
            write: Some(i),
            fence: o.op.fence,
            first: up(o.ret),
            first_op: Some(i),
            last: up(o.call),
            last_op: Some(i),
        };
        if by_value.insert(o.op.a, c).is_some() {
            return Err(Fast::Declined("a value is written twice"));
        }
    }
    let mut read = vec![false; ops.len()];
    for (i, o) in ops.iter().enumerate() {
        if (o.op.call, o.op.took) != (RegCall::Read, Took::Yes) {
            continue;
        }
        let Some(c) = by_value.get_mut(&o.op.a) else {
            return Err(Fast::violated(
                "read-from-nowhere",
                "a read returned a value that nobody had written",
                vec![i],
            ));
        };
        if let Some(w) = c.write {
            if o.ret < ops[w].call {
                let what = "a read returned a value before its write was called";
                return Err(Fast::violated("read-before-write", what, vec![i, w]));
            }
            read[w] = true;
        }
        if up(o.ret) < c.first {
            (c.first, c.first_op) = (up(o.ret), Some(i));
        }
        if up(o.call) > c.last {
            (c.last, c.last_op) = (up(o.call), Some(i));
        }
    }
    let mut unread = Vec::new();
    let mut kept: Vec<Cluster> = Vec::with_capacity(by_value.len());
    for (_, c) in by_value {
        match c.write {
            Some(w) if ops[w].is_optional() && !read[w] => unread.push(w),
            _ => kept.push(c),
        }
    }
    kept.sort_unstable_by_key(|c| (c.first, c.last, c.value));
    unread.sort_unstable();
    Ok(Clusters {
        read_or_known: kept,
        unread,
    })
}

/// Two clusters each of which must come before the other.
fn cycle(u: &Cluster, v: &Cluster) -> Fast {
    let mut ops = u.witness();
    ops.extend(v.witness());
    Fast::violated(
        "zone-cycle",
        "two values must each have been written after the other",
        ops,
    )
}

/// Whether clusters can follow each other; they must be sorted by `first`.
pub(crate) fn ordered<'a>(sorted: impl Iterator<Item = &'a Cluster> + Clone) -> Result<(), Fast> {
    let mut forward: Vec<&Cluster> = Vec::new();
    for c in sorted.clone().filter(|c| c.first < c.last) {
        if let Some(before) = forward.last()
            && c.first < before.last
        {
            return Err(cycle(before, c));
        }
        forward.push(c);
    }
    for c in sorted.filter(|c| c.first >= c.last) {
        let at = forward.partition_point(|f| f.first < c.last);
        if at > 0 && c.first < forward[at - 1].last {
            return Err(cycle(forward[at - 1], c));
        }
    }
    Ok(())
}

pub(crate) fn check(ops: &[Timed<RegOp>], initial: u32) -> Fast {
    match clusters(ops, initial).and_then(|c| ordered(c.read_or_known.iter())) {
        Ok(()) => Fast::Linearizable,
        Err(verdict) => with_cycle(verdict, ops, initial),
    }
}

/// Adds the shortest order cycle to evidence that is one.
pub(crate) fn with_cycle(verdict: Fast, ops: &[Timed<RegOp>], initial: u32) -> Fast {
    match verdict {
        Fast::Violated(f) if f.class == "zone-cycle" => {
            let cycle = shortest(ops, &f.ops, initial);
            Fast::Violated(Finding { cycle, ..f })
        }
        other => other,
    }
}
