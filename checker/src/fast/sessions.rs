//! From an owner's calls to its holds.
//!
//! An owner's grants and true releases come one after the other, so which
//! release ended which grant follows from their order. What is certain of a
//! hold is its *core*: from the ok of its acquire to the invoke of its release.
//! A hold can always be shrunk to its core, and no further. Unknown calls enter
//! where the known ones need them:
//! - grant, grant: an unknown release came between, and the core ends at its
//!   invoke; the one called first allows the most;
//! - release without a grant: an unknown acquire came before. Such a *ghost*
//!   can be as short as we like and has only to lie in the release's interval;
//! - a grant that nobody released ends at the invoke of an unknown release, if
//!   there is one, else never;
//! - any other unknown acquire is best left out: it would only take room.
//!
//! An unknown release that was called before the ok of the grant that it ended
//! leaves the core of that hold empty: it is a *point*, some instant of its
//! acquire after the release was called.
//!
//! Where an unknown acquire and an unknown release of one owner could together
//! cut a hold in two, the hold is first read as whole, and as cut where another
//! hold begins inside it: two legal readings of several. Where calls of one
//! owner overlap there is none, and the owner is left out. [`decide`] lets an
//! answer stand only if other readings could not change it: an order found
//! under one reading is enough; evidence must rest on holds that are certain.
//! Else the search decides.

use std::collections::VecDeque;

use hashbrown::HashSet;

use super::Fast;
use crate::models::lock::{Answer, LockCall, LockOp};
use crate::ops::{NEVER, Timed};

/// A proven grant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hold {
    pub acquire: usize,
    /// The release that ends it, known or not.
    pub release: Option<usize>,
    /// Core: both ends are stamps of events. A point has its end before its start.
    pub start: u64,
    pub end: u64,
    /// Latest stamp to which the hold can last.
    pub latest: u64,
}

impl Hold {
    /// Lasts for an instant between its end, the latest call that it needs, and its start, the ok of its acquire.
    pub fn is_point(&self) -> bool {
        self.end < self.start
    }
}

/// A grant that must have been, at some instant between two stamps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ghost {
    pub acquire: usize,
    pub release: usize,
    pub from: u64,
    pub to: u64,
}

#[derive(Default, Debug)]
pub(crate) struct Holds {
    pub holds: Vec<Hold>,
    pub ghosts: Vec<Ghost>,
    /// Busy tries and "is held" reads; "is free" reads.
    pub held: Vec<usize>,
    pub free: Vec<usize>,
    /// Releases that say "not held".
    pub denied: Vec<usize>,
    /// Least call of an unknown acquire that no hold needed.
    pub spare: Option<u64>,
    /// Releases of holds that could be cut in two, and their owners.
    choices: Set<usize>,
    unsure: Set<u32>,
    /// Why owners are left out.
    left_out: Option<&'static str>,
}

type Set<T> = HashSet<T, foldhash::fast::FixedState>;

const CUT: &str = "an unknown acquire and an unknown release could cut a hold in two";

impl Holds {
    /// The verdict on these holds, where it holds of all readings of the sessions. Evidence that rests on holds
    /// which are certain stands whatever other owners did; that nobody held the lock, or that all is well, says
    /// something of every owner.
    pub fn settle(&self, ops: &[Timed<LockOp>], verdict: Fast) -> Fast {
        let other = self.left_out.or((!self.unsure.is_empty()).then_some(CUT));
        match (verdict, other) {
            (Fast::Violated(f), Some(why)) => {
                let unsure = f
                    .ops
                    .iter()
                    .any(|&i| self.unsure.contains(&ops[i].op.owner));
                match unsure || f.class == "busy-while-free" {
                    true => Fast::Declined(why),
                    false => Fast::Violated(f),
                }
            }
            (Fast::Linearizable, _) => match self.left_out {
                Some(why) => Fast::Declined(why),
                None => Fast::Linearizable,
            },
            (verdict, _) => verdict,
        }
    }

    /// Choices inside whose hold another one begins, or a ghost lies.
    fn crossed(&self) -> Set<usize> {
        let holds = self.holds.iter().map(|h| (h.start, h.start));
        let ghosts = self.ghosts.iter().map(|g| (g.from, g.to));
        let mut all: Vec<(u64, u64)> = holds.chain(ghosts).collect();
        all.sort_unstable();
        // Of those that begin at or after each: the first to be over.
        for i in (1..all.len()).rev() {
            all[i - 1].1 = all[i - 1].1.min(all[i].1);
        }
        let inside = |h: &&Hold| {
            let next = all.partition_point(|s| s.0 <= h.start);
            all.get(next).is_some_and(|s| s.1 < h.end)
        };
        let chosen = |h: &Hold| h.release.filter(|r| self.choices.contains(r));
        let crossed = self.holds.iter().filter(inside);
        crossed.filter_map(chosen).collect()
    }
}

/// Reads the sessions and judges their holds.
pub(crate) fn decide(
    ops: &[Timed<LockOp>],
    rules: Rules,
    judge: impl Fn(&mut Holds) -> Fast,
) -> Fast {
    let mut cut = Set::default();
    for round in 0.. {
        let mut found = match read(ops, rules, &cut) {
            Ok(found) => found,
            Err(verdict) => return verdict,
        };
        let crossed = match found.choices.is_empty() || round == ROUNDS {
            true => Set::default(),
            false => found.crossed(),
        };
        let verdict = judge(&mut found);
        match found.settle(ops, verdict) {
            Fast::Declined(CUT) if !crossed.is_subset(&cut) => cut.extend(crossed),
            settled => return settled,
        }
    }
    Fast::Declined(CUT)
}

/// Readings tried after the first, each with more holds cut.
const ROUNDS: u32 = 8;

/// How sessions are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// A lease may expire: a grant may follow a grant, and nothing is proven
    /// to last except until a release that found it held.
    pub leased: bool,
    /// Releases name the fence of the grant that they mean.
    pub by_fence: bool,
}

struct Walk<'a> {
    ops: &'a [Timed<LockOp>],
    rules: Rules,
    /// Releases whose holds are read as cut.
    cut: &'a Set<usize>,
    out: Holds,
    /// Unknown acquires and releases of this owner, by call, not yet used.
    acquires: VecDeque<usize>,
    releases: VecDeque<usize>,
    open: Option<usize>,
    first_hold: usize,
}

type Step = Result<(), Fast>;

impl Walk<'_> {
    fn take(list: &mut VecDeque<usize>, ops: &[Timed<LockOp>], before: u64) -> Option<usize> {
        let first = *list.front()?;
        (ops[first].call < before).then(|| list.pop_front())?
    }

    fn close(&mut self, acquire: usize, release: Option<usize>) -> Step {
        let Timed {
            call, ret: start, ..
        } = self.ops[acquire];
        let (end, latest) = match release {
            Some(r) => (self.ops[r].call.max(call), self.ops[r].ret),
            None if self.rules.leased => (start, NEVER),
            None => (NEVER, NEVER),
        };
        self.out.holds.push(Hold {
            acquire,
            release,
            start,
            end,
            latest,
        });
        Ok(())
    }

    fn structural(&mut self, i: usize) -> Step {
        if self.ops[i].op.call == LockCall::Acquire {
            self.granted(i)
        } else {
            self.released(i)
        }
    }

    fn granted(&mut self, i: usize) -> Step {
        if let Some(before) = self.open.replace(i) {
            if self.rules.leased {
                return self.close(before, None);
            }
            let Some(r) = Self::take(&mut self.releases, self.ops, self.ops[i].ret) else {
                let what = "one owner was granted the lock twice with no release between";
                return Err(Fast::violated("granted-twice", what, vec![before, i]));
            };
            return self.close(before, Some(r));
        }
        Ok(())
    }

    fn released(&mut self, i: usize) -> Step {
        let ret = self.ops[i].ret;
        let pending =
            |list: &VecDeque<usize>| list.front().is_some_and(|&u| self.ops[u].call < ret);
        if let Some(acquire) = self.open {
            if pending(&self.acquires) && (self.rules.leased || pending(&self.releases)) {
                self.out.unsure.insert(self.ops[i].op.owner);
                self.out.choices.insert(i);
                if self.cut.contains(&i) {
                    self.open = None;
                    let end = match self.rules.leased {
                        true => None,
                        false => self.releases.pop_front(),
                    };
                    self.close(acquire, end)?;
                    return self.ghost(i);
                }
            }
            self.open = None;
            return self.close(acquire, Some(i));
        }
        let weight = |&&u: &&usize| {
            self.ops[u].call < ret && self.ops[u].op.weight != self.ops[self.acquires[0]].op.weight
        };
        if self.acquires.iter().find(weight).is_some() {
            return Err(Fast::Declined(
                "unknown acquires of different weight could explain one release",
            ));
        }
        self.ghost(i)
    }

    /// A release that proves an unknown grant.
    fn ghost(&mut self, i: usize) -> Step {
        let ret = self.ops[i].ret;
        match Self::take(&mut self.acquires, self.ops, ret) {
            Some(u) => {
                let from = self.ops[u].call.max(self.ops[i].call);
                self.out.ghosts.push(Ghost {
                    acquire: u,
                    release: i,
                    from,
                    to: ret,
                });
                Ok(())
            }
            None => {
                let what =
                    "a release found the lock held by an owner to whom it cannot have been granted";
                Err(Fast::violated("release-without-grant", what, vec![i]))
            }
        }
    }

    fn end(&mut self) -> Step {
        if let Some(acquire) = self.open.take() {
            let release = match self.rules.leased {
                true => None,
                false => self.releases.pop_front(),
            };
            self.close(acquire, release)?;
        }
        let spare = self.acquires.front().map(|&u| self.ops[u].call);
        self.out.spare = [self.out.spare, spare].into_iter().flatten().min();
        Ok(())
    }

    /// A "not held" answer must reach outside the owner's cores.
    fn denied(&mut self, denied: &[usize]) -> Step {
        let holds = &self.out.holds[self.first_hold..];
        for &i in denied {
            let o = &self.ops[i];
            let at = holds.partition_point(|h| h.start < o.call);
            if at == 0 {
                continue;
            }
            let h = holds[at - 1];
            if o.ret < h.end && !(self.rules.leased && h.release.is_none()) {
                let mut ops = vec![h.acquire, i];
                ops.extend(h.release);
                return Err(Fast::violated(
                    "denied-owner",
                    "a release was answered `not held` while its owner held the lock",
                    ops,
                ));
            }
        }
        self.out.denied.extend_from_slice(denied);
        Ok(())
    }

    fn owner(&mut self, calls: &[usize]) -> Step {
        self.open = None;
        self.first_hold = self.out.holds.len();
        self.acquires.clear();
        self.releases.clear();
        let mut denied = Vec::new();
        for &i in calls {
            let o = &self.ops[i];
            match (o.op.call, o.op.answer) {
                (LockCall::Acquire, Answer::Unknown) => self.acquires.push_back(i),
                (LockCall::Release, Answer::Unknown) => self.releases.push_back(i),
                _ => {}
            }
        }
        let mut last_ret = 0;
        for &i in calls
            .iter()
            .filter(|&&i| self.ops[i].op.answer == Answer::Yes)
        {
            if self.ops[i].call < last_ret {
                return Err(Fast::Declined("calls of one owner overlap"));
            }
            last_ret = self.ops[i].ret;
        }
        for &i in calls {
            let o = &self.ops[i];
            match (o.op.call, o.op.answer) {
                (LockCall::Acquire, Answer::No) => self.out.held.push(i),
                (LockCall::Release, Answer::No) => denied.push(i),
                (LockCall::Acquire | LockCall::Release, Answer::Yes) => self.structural(i)?,
                _ => {}
            }
        }
        self.end()?;
        self.denied(&denied)
    }
}

/// Identity under which calls belong together.
fn identity(o: &LockOp, by_fence: bool) -> (u32, Option<u64>) {
    (o.owner, if by_fence { o.fence } else { None })
}

/// Positions of the acquires and releases, grouped by identity, by call within it.
fn grouped(ops: &[Timed<LockOp>], by_fence: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ops.len())
        .filter(|&i| ops[i].op.call != LockCall::Held)
        .collect();
    order.sort_by_key(|&i| identity(&ops[i].op, by_fence));
    order
}

/// Reads every owner's session. `Err` carries a verdict, or why there is none.
fn read(ops: &[Timed<LockOp>], rules: Rules, cut: &Set<usize>) -> Result<Holds, Fast> {
    let order = grouped(ops, rules.by_fence);
    let mut walk = Walk {
        ops,
        rules,
        cut,
        out: Holds::default(),
        acquires: VecDeque::new(),
        releases: VecDeque::new(),
        open: None,
        first_hold: 0,
    };
    for calls in order.chunk_by(|&a, &b| {
        identity(&ops[a].op, rules.by_fence) == identity(&ops[b].op, rules.by_fence)
    }) {
        let (holds, ghosts) = (walk.out.holds.len(), walk.out.ghosts.len());
        let why = match walk.owner(calls) {
            Ok(()) => continue,
            Err(Fast::Declined(why)) => why,
            Err(_) if walk.out.unsure.contains(&ops[calls[0]].op.owner) => CUT,
            Err(verdict) => return Err(verdict),
        };
        walk.out.left_out = walk.out.left_out.or(Some(why));
        walk.out.holds.truncate(holds);
        walk.out.ghosts.truncate(ghosts);
    }
    for (i, o) in ops.iter().enumerate() {
        match (o.op.call, o.op.answer) {
            (LockCall::Held, Answer::Yes) => walk.out.held.push(i),
            (LockCall::Held, Answer::No) => walk.out.free.push(i),
            _ => {}
        }
    }
    Ok(walk.out)
}
