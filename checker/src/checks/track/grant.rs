//! A grant: (key, owner, fence), and how long it is certain to be held.

use std::sync::Arc;

use fencepost_history::Value;

use super::op::Mode;
use super::{KeyId, Stamp};

pub type GrantId = u64;

/// Certain from `ok` until the earliest of `until` and `promised`.
#[derive(Clone, Debug)]
pub struct Grant {
    pub id: GrantId,
    pub key: KeyId,
    pub name: Arc<str>,
    pub owner: Value,
    pub fence: Option<u64>,
    pub mode: Mode,
    pub process: u64,
    pub worker: Option<u32>,
    pub acquire: Stamp,
    pub ok: Stamp,
    /// As granted, nanoseconds; `None` without a lease.
    pub ttl: Option<i64>,
    /// Promised end, nanoseconds since the run began: the invoke of the acquire, or of the last renewal
    /// answered ok, + the granted TTL − margin. `None`: no lease, held until released.
    pub promised: Option<i64>,
    /// Sent and answer of the renewal that `promised` rests on.
    pub renewed: Option<(Stamp, Stamp)>,
    /// Times that one owner holds it (re-entrant), less the releases asked for.
    pub depth: u32,
    /// First moment at which it is no longer certain, for another reason than its lease.
    pub until: Option<Stamp>,
    /// Invocation of the release that ended it.
    pub release: Option<Stamp>,
    /// When a release of it was answered "was held".
    pub freed: Option<Stamp>,
    /// The loss that its worker reported, no earlier than this.
    pub lost: Option<Stamp>,
}

impl Grant {
    /// Whether it is surely held at this moment.
    pub fn certain_at(&self, s: Stamp) -> bool {
        self.ok.index <= s.index
            && self.until.is_none_or(|u| s.index < u.index)
            && self.promised.is_none_or(|p| s.time < p)
    }

    /// Whether its promised end has passed, or its hold ended otherwise, by this moment.
    pub fn over_at(&self, s: Stamp) -> bool {
        self.until.is_some_and(|u| s.index >= u.index) || self.promised.is_some_and(|p| s.time > p)
    }

    /// Time at which its certainty ended or will end; `i64::MAX` while that is open.
    pub fn end_time(&self) -> i64 {
        let until = self.until.map_or(i64::MAX, |u| u.time);
        self.promised.unwrap_or(i64::MAX).min(until)
    }

    /// Whether this is surely a later grant than `other`: asked for after the other was there, or with
    /// a higher fence. (Answers may come in either order.)
    pub fn later_than(&self, other: &Grant) -> bool {
        match (self.fence, other.fence) {
            _ if self.acquire.index > other.ok.index => true,
            (Some(a), Some(b)) => a > b && other.acquire.index <= self.ok.index,
            _ => false,
        }
    }

    /// One owner's re-entrant grants are one. Equal tokens of different workers are not one owner.
    pub fn same_owner(&self, other: &Grant) -> bool {
        if self.owner == Value::Null && other.owner == Value::Null {
            return self.process == other.process;
        }
        self.owner == other.owner
            && match (self.worker, other.worker) {
                (Some(a), Some(b)) => a == b,
                _ => true,
            }
    }

    /// Whether the two may not be held at once. (Semaphores count instead.)
    pub fn conflicts(&self, other: &Grant) -> bool {
        let modes = !matches!((self.mode, other.mode), (Mode::Shared, Mode::Shared))
            && self.mode != Mode::Semaphore;
        modes && self.key == other.key && !self.same_owner(other)
    }

    pub(super) fn end_at(&mut self, s: Stamp) {
        if self.until.is_none_or(|u| s.index < u.index) {
            self.until = Some(s);
        }
    }

    /// Who it is, for a story.
    pub fn who(&self) -> String {
        match self.worker {
            Some(w) => format!("worker {w}"),
            None => format!("process {}", self.process),
        }
    }

    /// `, fence 33` where there is one.
    pub fn fence_words(&self) -> String {
        self.fence
            .map(|f| format!(", fence {f}"))
            .unwrap_or_default()
    }
}
