//! Owner-less mutex and semaphore.
//!
//! Let a(t) and r(t) be the acquires and releases linearized by time t. An
//! operation is interchangeable with any other of its kind, so a history is
//! linearizable iff there are step functions a, r with 0 ≤ a − r ≤ permits,
//! never more than were called, and never fewer than must have returned: a
//! schedule of equal unit jobs with deadlines. Such a set of functions is
//! closed under pointwise minimum, so if it is not empty it has a least member,
//! and that is the schedule which linearizes an operation only when its return
//! forces it. If the forced operation is not possible (acquire at a full lock,
//! release of a free one), every schedule must have had one more operation of
//! the other kind by now; jobs of one kind are equal but for their deadlines,
//! so taking the pending one with the earliest deadline is never worse
//! (exchange argument). If none is pending, there is no schedule: violated.
//! An operation that never returned has no deadline and is taken last, and only
//! if it is needed; that is all that an unknown outcome means here.
//!
//! With one permit, "busy" and "held?" answers force in the same way: a pending
//! read is satisfied as soon as the state is the one that it saw, and if its
//! return comes first, one more operation is forced. For more permits the
//! number of forced operations is not determined, and the search decides.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Fast, Finding};
use crate::models::lock::{Answer, LockCall, LockOp};
use crate::ops::{NEVER, Timed};

type Pending = BinaryHeap<Reverse<(u64, usize)>>;

struct Sweep<'a> {
    ops: &'a [Timed<LockOp>],
    permits: u32,
    taken: u32,
    acquires: Pending,
    releases: Pending,
    done: Vec<bool>,
    /// Unsatisfied pending reads that wait for: a full lock, a free one.
    full: Vec<usize>,
    free: Vec<usize>,
}

impl Sweep<'_> {
    fn see(&mut self) {
        let waiting = if self.taken == self.permits {
            &mut self.full
        } else {
            &mut self.free
        };
        for i in waiting.drain(..) {
            self.done[i] = true;
        }
    }

    fn apply(&mut self, i: usize) {
        self.done[i] = true;
        match self.ops[i].op.call {
            LockCall::Acquire => self.taken += 1,
            _ => self.taken -= 1,
        }
        self.see();
    }

    /// Linearizes the pending operation of one kind that is due first.
    fn force(&mut self, acquire: bool) -> bool {
        let heap = if acquire {
            &mut self.acquires
        } else {
            &mut self.releases
        };
        while let Some(Reverse((_, i))) = heap.pop() {
            if !self.done[i] {
                self.apply(i);
                return true;
            }
        }
        false
    }

    fn call(&mut self, i: usize) {
        let o = &self.ops[i];
        match (o.op.call, o.op.answer) {
            (LockCall::Acquire, Answer::No) | (LockCall::Held, Answer::Yes) => {
                self.full.push(i);
                if self.taken == self.permits {
                    self.see();
                }
            }
            (LockCall::Held, _) => {
                self.free.push(i);
                if self.taken != self.permits {
                    self.see();
                }
            }
            (LockCall::Acquire, _) => self.acquires.push(Reverse((o.ret, i))),
            (LockCall::Release, _) => self.releases.push(Reverse((o.ret, i))),
        }
    }

    /// False if nothing can make operation `i` possible by its return.
    fn ret(&mut self, i: usize) -> bool {
        if self.done[i] {
            return true;
        }
        let o = &self.ops[i].op;
        let (acquire, read) = (
            o.call == LockCall::Acquire,
            o.call == LockCall::Held || o.answer == Answer::No,
        );
        if read {
            let want_full = self.taken != self.permits;
            return self.force(want_full);
        }
        let blocked = if acquire {
            self.taken == self.permits
        } else {
            self.taken == 0
        };
        if blocked && !self.force(!acquire) {
            return false;
        }
        if !self.done[i] {
            self.apply(i);
        }
        true
    }
}

/// Operations called before the stamp at which the sweep got stuck.
fn stuck(ops: &[Timed<LockOp>], i: usize) -> Finding {
    let at = ops[i].ret;
    let what = match (ops[i].op.call, ops[i].op.answer) {
        (LockCall::Acquire, Answer::Yes) => {
            "an acquire was granted, but no release can have made room for it"
        }
        (LockCall::Release, _) => "a release succeeded, but no acquire can have come before it",
        (LockCall::Held, Answer::No) => "the lock was seen free, but no release can have freed it",
        _ => "the lock was seen held, but no acquire can have taken it",
    };
    Finding {
        class: "blocked-operation",
        summary: what.to_string(),
        ops: (0..ops.len()).filter(|&j| ops[j].call < at).collect(),
        cycle: Vec::new(),
    }
}

pub(crate) fn check(ops: &[Timed<LockOp>], permits: u32) -> Fast {
    let read = |o: &Timed<LockOp>| o.op.call == LockCall::Held || o.op.answer == Answer::No;
    if permits > 1 && ops.iter().any(read) {
        return Fast::Declined("busy and held answers of a semaphore need the search");
    }
    let mut returns: Vec<(u64, u32)> = ops
        .iter()
        .enumerate()
        .filter(|(_, o)| o.ret != NEVER)
        .map(|(i, o)| (o.ret, i as u32))
        .collect();
    if !returns.is_sorted() {
        returns.sort_unstable();
    }
    let mut sweep = Sweep {
        ops,
        permits,
        taken: 0,
        acquires: Pending::new(),
        releases: Pending::new(),
        done: vec![false; ops.len()],
        full: Vec::new(),
        free: Vec::new(),
    };
    let mut next = 0;
    for (at, i) in returns {
        while next < ops.len() && ops[next].call < at {
            sweep.call(next);
            next += 1;
        }
        if !sweep.ret(i as usize) {
            return Fast::Violated(stuck(ops, i as usize));
        }
    }
    Fast::Linearizable
}
