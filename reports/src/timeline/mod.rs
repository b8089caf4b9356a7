//! The timeline of one lock: who believed to hold it, and what reached the store.
//!
//! [`build`] folds events into plain data, [`store`] places the store's log on the
//! run's time axis, [`draw`] makes the picture. The first two know nothing of pixels.

pub mod build;
pub mod draw;
pub mod lanes;
mod live;
pub mod store;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use fencepost_history::Value;

use crate::load::store::StoreEntry;
use crate::scan::faults::Fault;

/// Which lock is shown, when, and why. Times in nanoseconds since the run began.
#[derive(Clone, Debug, PartialEq)]
pub struct Focus {
    pub key: Option<Arc<str>>,
    pub from: i64,
    pub to: i64,
    /// Events of the story, to be numbered on the timeline: index and time.
    pub steps: Vec<(u64, i64)>,
    /// One sentence.
    pub why: String,
}

/// What is shown of one lock in one stretch of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    pub lanes: Vec<Lane>,
    pub store: Vec<StoreMark>,
    /// Whether `store` came from the store's own log, not from clients' answers.
    pub store_log: bool,
    /// What was left out, one sentence each.
    pub cut: Vec<String>,
}

/// One worker, or one process where no worker is named.
#[derive(Clone, Debug, PartialEq)]
pub struct Lane {
    pub who: Who,
    /// Holds in rows, so that those of one row do not overlap.
    pub rows: Vec<Vec<Hold>>,
    /// Acquires that failed, and operations of owners whose grant is not shown.
    pub loose: Vec<Op>,
    pub marks: Vec<Mark>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Who {
    Worker(u64),
    Process(u64),
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Who::Worker(n) => write!(f, "worker {n}"),
            Who::Process(n) => write!(f, "process {n}"),
        }
    }
}

/// An instant and the event that stands for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    pub time: i64,
    pub index: u64,
}

/// One grant, from the request to the end of the belief in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    pub who: Who,
    pub process: u64,
    pub owner: String,
    pub fence: Option<u64>,
    pub asked: At,
    pub granted: At,
    pub ttl: Option<i64>,
    /// End of the lease that the service promised, as far as renewals answered
    /// ok by then prove it; `None` for a lock without a lease.
    pub promised: Option<i64>,
    pub renewals: Vec<At>,
    /// Latest proof that the client still believed to hold: a claim or an operation.
    pub believed: i64,
    pub end: Option<(End, At)>,
    pub ops: Vec<Op>,
}

impl Hold {
    /// Until when the client held by right: the earliest of its promised end and
    /// what ended it; `None` when neither is known. A loss counts from when it was
    /// reported; the checks are more careful and count it from the last request
    /// that the worker had read before.
    pub fn held_until(&self) -> Option<i64> {
        let ended = self.end.as_ref().map(|(_, at)| at.time);
        match (self.promised, ended) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Until when the client believed to hold although the promise was over;
    /// `None` when it did not, or when nothing was promised.
    pub fn overstay(&self) -> Option<i64> {
        let promised = self.promised?;
        let until = match &self.end {
            Some((_, at)) => at.time.max(self.believed),
            None => self.believed,
        };
        (until > promised).then_some(until)
    }

    /// Last instant at which anything is known of this hold; for a hold that
    /// never ended and was promised nothing, the far future.
    pub fn last(&self) -> i64 {
        let end = self.end.as_ref().map(|(_, at)| at.time);
        let known = self.overstay().or(end).or(self.promised);
        known.unwrap_or(i64::MAX).max(self.believed)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Released,
    Lost,
    /// The worker was asked to close.
    Closed,
    Died,
}

/// A read, a write, an add or an acquire that failed: from its invocation to its answer, if any came.
#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    pub f: Arc<str>,
    pub owner: String,
    pub fence: Option<u64>,
    pub value: Value,
    pub invoked: At,
    pub answered: Option<At>,
    pub answer: Answer,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Accepted,
    /// Surely without effect, and the error.
    Refused(String),
    Unknown,
}

/// A named instant in a lane: a point reached, a loss, an exit.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    pub at: At,
    pub what: String,
}

/// One operation in the store's serial order, placed in time.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreMark {
    pub seq: u64,
    pub op: String,
    pub fence: Option<u64>,
    pub accepted: bool,
    /// Highest fence accepted until then, this one included.
    pub highest: Option<u64>,
    /// Some instant within the operation's interval that keeps the store's order.
    pub time: i64,
    /// Invocation in the history.
    pub index: u64,
}

impl StoreMark {
    /// Accepted although a higher fence had been accepted before.
    pub fn stale(&self) -> bool {
        self.accepted && matches!((self.fence, self.highest), (Some(f), Some(h)) if f < h)
    }

    pub fn entry_of(entry: &StoreEntry, time: i64, index: u64) -> StoreMark {
        StoreMark {
            seq: entry.seq,
            op: entry.op.clone(),
            fence: entry.fence,
            accepted: entry.accepted,
            highest: entry.highest,
            time,
            index,
        }
    }
}

/// The faults that touch the window of `focus`, with their spans clipped to it.
pub fn in_window<'a>(faults: &'a [Fault], focus: &Focus) -> Vec<(&'a Fault, i64, i64)> {
    let clipped = faults.iter().filter_map(|fault| {
        let (from, to) = fault.span()?;
        let (from, to) = (from.max(focus.from), to.unwrap_or(focus.to).min(focus.to));
        (from <= to).then_some((fault, from, to))
    });
    clipped.collect()
}
