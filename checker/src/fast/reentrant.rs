//! Re-entrant mutex, plain and fenced.
//!
//! An owner's calls come one after the other, so the depth after each is known
//! and only the outermost acquire and the release that brings the depth to
//! zero bound a hold: its core runs from the ok of the one to the invoke of the
//! other, as for any owner-aware lock (`cores`), and the calls between them need
//! no room of their own. Unknown calls leave the depth unknown for what follows:
//! an unknown release before another call of its owner, or an unknown acquire
//! before a true release, is for the search. Otherwise an unknown acquire is
//! best left out, and a hold of depth d can have ended once d unknown releases
//! were called.
//!
//! Fences: the outermost grants rise as in `fenced`. A re-entrant grant keeps
//! the token, or (`raise`) has one above the owner's last; no other owner's
//! fence can lie among those of one hold.

use super::fenced;
use super::sessions::{Hold, Holds};
use super::{Fast, cores};
use crate::models::lock::{Answer, LockCall, LockOp};
use crate::ops::{NEVER, Timed};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fences {
    None,
    Keep,
    Raise,
}

struct Session<'a> {
    ops: &'a [Timed<LockOp>],
    limit: u32,
    fences: Fences,
    out: Holds,
    /// Grants of the open hold that are not yet released, outermost first.
    open: Vec<usize>,
    /// Fence of the owner's last grant in this hold.
    last: usize,
    /// Highest fence of each hold, by its outermost acquire.
    tops: Vec<(usize, usize)>,
}

impl Session<'_> {
    fn granted(&mut self, i: usize) -> Result<(), Fast> {
        let depth = self.open.len();
        if depth as u64 >= u64::from(self.limit) {
            let mut at = self.open.clone();
            at.push(i);
            return Err(Fast::violated(
                "above-limit",
                format!(
                    "one owner was granted the lock more than {} times at once",
                    self.limit
                ),
                at,
            ));
        }
        if depth > 0 {
            let (before, now) = (self.ops[self.last].op.fence, self.ops[i].op.fence);
            let (wrong, what) = match self.fences {
                Fences::None => (false, ""),
                Fences::Keep => (before != now, "a re-entrant grant did not keep its token"),
                Fences::Raise => (before >= now, "a re-entrant grant did not raise its fence"),
            };
            if wrong {
                return Err(Fast::violated("reentrant-fence", what, vec![self.last, i]));
            }
        }
        self.last = i;
        self.open.push(i);
        Ok(())
    }

    fn close(&mut self, acquire: usize, release: Option<usize>) -> Result<(), Fast> {
        let start = self.ops[acquire].ret;
        let (end, latest) = release.map_or((NEVER, NEVER), |r| (self.ops[r].call, self.ops[r].ret));
        if end < self.ops[self.last].ret {
            return Err(Fast::Declined(
                "an unknown release was called before the grant that it may have ended",
            ));
        }
        self.tops.push((acquire, self.last));
        self.out.holds.push(Hold {
            acquire,
            release,
            start,
            end,
            latest,
        });
        Ok(())
    }

    fn released(&mut self, i: usize) -> Result<(), Fast> {
        match self.open.pop() {
            None => {
                let what =
                    "a release found the lock held by an owner to whom it cannot have been granted";
                Err(Fast::violated("release-without-grant", what, vec![i]))
            }
            Some(acquire) if self.open.is_empty() => self.close(acquire, Some(i)),
            Some(_) => Ok(()),
        }
    }

    fn owner(&mut self, calls: &[usize]) -> Result<(), Fast> {
        self.open.clear();
        let known = |i: &usize| self.ops[*i].op.answer == Answer::Yes;
        let structural: Vec<usize> = calls.iter().copied().filter(known).collect();
        if structural
            .windows(2)
            .any(|w| self.ops[w[1]].call < self.ops[w[0]].ret)
        {
            return Err(Fast::Declined("calls of one owner overlap"));
        }
        let last = structural.last().map_or(0, |&i| self.ops[i].ret);
        let last_release = structural
            .iter()
            .rev()
            .find(|&&i| self.ops[i].op.call == LockCall::Release);
        let last_release = last_release.map_or(0, |&i| self.ops[i].ret);
        let mut releases = Vec::new();
        for &i in calls
            .iter()
            .filter(|&&i| self.ops[i].op.answer == Answer::Unknown)
        {
            let acquire = self.ops[i].op.call == LockCall::Acquire;
            if self.ops[i].call < if acquire { last_release } else { last } {
                return Err(Fast::Declined(
                    "an unknown call leaves the depth of what follows unknown",
                ));
            }
            if acquire {
                self.out.spare = Some(
                    self.out
                        .spare
                        .map_or(self.ops[i].call, |s| s.min(self.ops[i].call)),
                );
            } else {
                releases.push(i);
            }
        }
        let first_hold = self.out.holds.len();
        for &i in &structural {
            if self.ops[i].op.call == LockCall::Acquire {
                self.granted(i)?
            } else {
                self.released(i)?
            }
        }
        if let Some(&outermost) = self.open.first() {
            let enough = releases.get(self.open.len() - 1).copied();
            self.close(outermost, enough)?;
        }
        self.answers(calls, first_hold)
    }

    /// "Not held" and "busy" answers.
    fn answers(&mut self, calls: &[usize], first_hold: usize) -> Result<(), Fast> {
        for &i in calls
            .iter()
            .filter(|&&i| self.ops[i].op.answer == Answer::No)
        {
            let o = &self.ops[i];
            let holds = &self.out.holds[first_hold..];
            if o.op.call == LockCall::Acquire {
                if holds
                    .iter()
                    .any(|h| self.ops[h.acquire].call < o.ret && h.latest > o.call)
                {
                    return Err(Fast::Declined(
                        "an owner was told `busy` around its own hold",
                    ));
                }
                self.out.held.push(i);
                continue;
            }
            let at = holds.partition_point(|h| h.start < o.call);
            if at > 0 && o.ret < holds[at - 1].end {
                let h = holds[at - 1];
                let mut ops = vec![h.acquire, i];
                ops.extend(h.release);
                return Err(Fast::violated(
                    "denied-owner",
                    "a release was answered `not held` while its owner held the lock",
                    ops,
                ));
            }
            self.out.denied.push(i);
        }
        Ok(())
    }
}

/// With `raise`, all fences of a hold lie below the first of the next.
fn blocks(ops: &[Timed<LockOp>], tops: &mut [(usize, usize)]) -> Option<Fast> {
    tops.sort_unstable_by_key(|t| ops[t.0].op.fence);
    tops.windows(2)
        .find(|w| ops[w[0].1].op.fence >= ops[w[1].0].op.fence)
        .map(|w| {
            let at = vec![w[0].0, w[0].1, w[1].0];
            Fast::violated(
                "overlapping-holds",
                "another owner's fence lies among those of one hold",
                at,
            )
        })
}

pub(crate) fn check(ops: &[Timed<LockOp>], limit: u32, fences: Fences) -> Fast {
    let mut order: Vec<usize> = (0..ops.len())
        .filter(|&i| ops[i].op.call != LockCall::Held)
        .collect();
    order.sort_by_key(|&i| ops[i].op.owner);
    let mut s = Session {
        ops,
        limit,
        fences,
        out: Holds::default(),
        open: Vec::new(),
        last: 0,
        tops: Vec::new(),
    };
    let mut declined = None;
    for calls in order.chunk_by(|&a, &b| ops[a].op.owner == ops[b].op.owner) {
        match s.owner(calls) {
            Ok(()) => {}
            Err(Fast::Declined(why)) => declined = declined.or(Some(why)),
            Err(verdict) => return verdict,
        }
    }
    if let Some(why) = declined {
        return Fast::Declined(why);
    }
    let (mut found, mut tops) = (s.out, s.tops);
    for (i, o) in ops
        .iter()
        .enumerate()
        .filter(|(_, o)| o.op.call == LockCall::Held)
    {
        if o.op.answer == Answer::Yes {
            found.held.push(i)
        } else {
            found.free.push(i)
        }
    }
    if fences == Fences::Raise
        && let Some(verdict) = blocks(ops, &mut tops)
    {
        return verdict;
    }
    match fences {
        Fences::None => cores::finish(ops, &found, 1),
        _ => fenced::finish(ops, &mut found, false),
    }
}
