//! Sequential specifications of locks.

use smallvec::SmallVec;

use super::lock::{Answer, LockCall, LockOp};
use crate::model::Model;

/// A lock or semaphore that knows no owner: an acquire takes one permit, a
/// release gives one back. With one permit, the mutex of Jepsen and Knossos.
pub struct Counting {
    pub permits: u32,
}

impl Model for Counting {
    type Op = LockOp;
    type State = u32;

    fn initial(&self) -> u32 {
        0
    }

    fn step(&self, taken: &u32, op: &LockOp) -> Option<u32> {
        let full = *taken == self.permits;
        match (op.call, op.answer) {
            (LockCall::Acquire, Answer::No) => full.then_some(*taken),
            (LockCall::Acquire, _) => (!full).then(|| taken + 1),
            (LockCall::Release, Answer::No) => None,
            (LockCall::Release, _) => taken.checked_sub(1),
            (LockCall::Held, Answer::Yes) => (*taken > 0).then_some(*taken),
            (LockCall::Held, Answer::No) => (*taken == 0).then_some(0),
            (LockCall::Held, Answer::Unknown) => Some(*taken),
        }
    }

    fn is_read(&self, op: &LockOp) -> bool {
        reads(op)
    }
}

fn reads(op: &LockOp) -> bool {
    op.call == LockCall::Held || op.answer == Answer::No
}

/// A lock whose grants belong to owners and weigh something: with capacity 1
/// the owner-aware mutex; with an exclusive grant as heavy as the capacity and
/// a shared one of weight 1, shared/exclusive; else the weighted semaphore.
/// One owner has at most one grant at a time.
pub struct Owned {
    pub capacity: u32,
}

impl Model for Owned {
    type Op = LockOp;
    /// Owner and weight of each grant, by owner.
    type State = SmallVec<[(u32, u32); 2]>;

    fn initial(&self) -> Self::State {
        SmallVec::new()
    }

    fn step(&self, held: &Self::State, op: &LockOp) -> Option<Self::State> {
        let at = held.iter().position(|h| h.0 == op.owner);
        let load: u64 = held.iter().map(|h| u64::from(h.1)).sum();
        let fits = at.is_none() && load + u64::from(op.weight) <= u64::from(self.capacity);
        let same = |yes: bool| yes.then(|| held.clone());
        match (op.call, op.answer) {
            (LockCall::Acquire, Answer::No) => same(!fits),
            (LockCall::Acquire, _) => fits.then(|| {
                let mut next = held.clone();
                next.push((op.owner, op.weight));
                next.sort_unstable();
                next
            }),
            (LockCall::Release, Answer::No) => same(at.is_none()),
            (LockCall::Release, answer) => match at {
                Some(i) => {
                    let mut next = held.clone();
                    next.remove(i);
                    Some(next)
                }
                None => same(answer == Answer::Unknown),
            },
            (LockCall::Held, Answer::Yes) => same(load > 0),
            (LockCall::Held, Answer::No) => same(load == 0),
            (LockCall::Held, Answer::Unknown) => same(true),
        }
    }

    fn is_read(&self, op: &LockOp) -> bool {
        reads(op)
    }
}

/// Re-entrant mutex: its owner may take it up to `limit` times, and it is free
/// when it was released as often.
pub struct Reentrant {
    pub limit: u32,
}

impl Model for Reentrant {
    type Op = LockOp;
    /// Owner and depth.
    type State = Option<(u32, u32)>;

    fn initial(&self) -> Self::State {
        None
    }

    fn step(&self, held: &Self::State, op: &LockOp) -> Option<Self::State> {
        let mine = held.filter(|h| h.0 == op.owner);
        let room = held.is_none() || mine.is_some_and(|h| h.1 < self.limit);
        match (op.call, op.answer) {
            (LockCall::Acquire, Answer::No) => (!room).then_some(*held),
            (LockCall::Acquire, _) => room.then(|| Some((op.owner, mine.map_or(1, |h| h.1 + 1)))),
            (LockCall::Release, Answer::No) => mine.is_none().then_some(*held),
            (LockCall::Release, answer) => match mine {
                Some((o, d)) => Some((d > 1).then(|| (o, d - 1))),
                None => (answer == Answer::Unknown).then_some(*held),
            },
            (LockCall::Held, Answer::Yes) => held.is_some().then_some(*held),
            (LockCall::Held, Answer::No) => held.is_none().then_some(None),
            (LockCall::Held, Answer::Unknown) => Some(*held),
        }
    }

    fn is_read(&self, op: &LockOp) -> bool {
        reads(op)
    }
}

/// State of a fenced lock. `last` is the highest fence given out; an unknown
/// grant takes the least fence that it can have had, and `exact` is false until
/// something names its fence: any higher choice allows no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fenced {
    pub holder: Option<(u32, u32)>,
    pub last: Option<u64>,
    pub exact: bool,
}

impl Fenced {
    const START: Fenced = Fenced {
        holder: None,
        last: None,
        exact: true,
    };

    fn grant(&self, holder: (u32, u32), fence: Option<u64>) -> Option<Fenced> {
        let exact = fence.is_some();
        let last = match (fence, self.last) {
            (Some(f), Some(l)) if f <= l => return None,
            (Some(f), _) => f,
            (None, None) => 0,
            (None, Some(l)) => l.checked_add(1)?,
        };
        Some(Fenced {
            holder: Some(holder),
            last: Some(last),
            exact,
        })
    }

    /// The same hold, now known to have fence `f`; `None` if it cannot have.
    fn named(&self, fence: Option<u64>) -> Option<Fenced> {
        match (fence, self.last) {
            (None, _) => Some(*self),
            (Some(f), Some(l)) if f == l || (!self.exact && f > l) => Some(Fenced {
                last: Some(f),
                exact: true,
                ..*self
            }),
            _ => None,
        }
    }
}

/// Mutex whose grants carry a fence above every earlier one's. `leased`: a
/// lease may expire at any time, so that a grant may follow a grant, and a
/// release that says "was not held" is always possible.
pub struct FencedMutex {
    pub leased: bool,
}

impl Model for FencedMutex {
    type Op = LockOp;
    type State = Fenced;

    fn initial(&self) -> Fenced {
        Fenced::START
    }

    fn step(&self, s: &Fenced, op: &LockOp) -> Option<Fenced> {
        let free = Fenced { holder: None, ..*s };
        let mine = s
            .holder
            .filter(|h| h.0 == op.owner)
            .and_then(|_| s.named(op.fence));
        match (op.call, op.answer) {
            (LockCall::Acquire, Answer::No) => (s.holder.is_some() || self.leased).then_some(*s),
            (LockCall::Acquire, _) if s.holder.is_some() && !self.leased => None,
            (LockCall::Acquire, _) => s.grant((op.owner, 1), op.fence),
            (LockCall::Release, Answer::No) if self.leased => {
                Some(if mine.is_some() { free } else { *s })
            }
            (LockCall::Release, Answer::No) => {
                (mine.is_none() || !s.exact && op.fence.is_some()).then_some(*s)
            }
            (LockCall::Release, answer) => match mine {
                Some(named) => Some(Fenced {
                    holder: None,
                    ..named
                }),
                None => (answer == Answer::Unknown).then_some(*s),
            },
            (LockCall::Held, Answer::Yes) => (s.holder.is_some() || self.leased).then_some(*s),
            (LockCall::Held, Answer::No) => (s.holder.is_none() || self.leased).then_some(*s),
            (LockCall::Held, Answer::Unknown) => Some(*s),
        }
    }

    fn is_read(&self, op: &LockOp) -> bool {
        reads(op) && !(self.leased && op.call == LockCall::Release)
    }
}

/// Re-entrant fenced mutex. A re-entrant grant keeps the token of the
/// outermost one, or with `raise` gets a new one above it.
pub struct ReentrantFenced {
    pub raise: bool,
}

impl Model for ReentrantFenced {
    type Op = LockOp;
    type State = Fenced;

    fn initial(&self) -> Fenced {
        Fenced::START
    }

    fn step(&self, s: &Fenced, op: &LockOp) -> Option<Fenced> {
        let mine = s.holder.filter(|h| h.0 == op.owner);
        match (op.call, op.answer) {
            (LockCall::Acquire, Answer::No) => (s.holder.is_some() && mine.is_none()).then_some(*s),
            (LockCall::Acquire, _) => match (s.holder, mine) {
                (None, _) => s.grant((op.owner, 1), op.fence),
                (_, Some((o, d))) if self.raise => s.grant((o, d + 1), op.fence),
                (_, Some((o, d))) => s.named(op.fence).map(|n| Fenced {
                    holder: Some((o, d + 1)),
                    ..n
                }),
                _ => None,
            },
            (LockCall::Release, Answer::No) => mine.is_none().then_some(*s),
            (LockCall::Release, answer) => match mine {
                Some((o, d)) => Some(Fenced {
                    holder: (d > 1).then(|| (o, d - 1)),
                    ..*s
                }),
                None => (answer == Answer::Unknown).then_some(*s),
            },
            (LockCall::Held, Answer::Yes) => s.holder.is_some().then_some(*s),
            (LockCall::Held, Answer::No) => s.holder.is_none().then_some(*s),
            (LockCall::Held, Answer::Unknown) => Some(*s),
        }
    }

    fn is_read(&self, op: &LockOp) -> bool {
        reads(op)
    }
}
