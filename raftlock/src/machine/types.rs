//! What goes into the machine and what comes out.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::buckets::StoredMap;

/// A lock's name, `namespace/path/…`.
pub type Name = Arc<str>;
/// A session's id, drawn at random by the leader that opened it (its top byte is the group).
pub type SessionId = u64;
/// A fencing token.
pub type Token = u64;
/// The client's number of a request, unique within its session.
pub type RequestId = u64;

/// From here on request ids are drawn by the node, for requests that named none. Nobody can ask again under them, so that what
/// became of them is not remembered.
pub const DRAWN: RequestId = 1 << 63;

/// Namespace of names without a `/`.
pub const DEFAULT_NAMESPACE: &str = "default";

/// The namespace of a lock's name: what stands before the first `/`.
pub fn namespace_of(name: &str) -> &str {
    name.split_once('/')
        .map_or(DEFAULT_NAMESPACE, |(first, _)| first)
}

/// How many may hold a lock together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// One holder.
    Exclusive,
    /// Any number of shared holders, never beside an exclusive one.
    Shared,
    /// At most so many holders, all of whom named the same number.
    Semaphore(u32),
}

/// An acquire, with the limits that the leader read from the namespace (so that all replicas use the same).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acquire {
    /// Session that asks.
    pub session: SessionId,
    /// Repeating it gives the same answer.
    pub request: RequestId,
    /// The epoch the client knows; an older one than the machine's is refused.
    pub epoch: Option<u64>,
    /// The lock.
    pub name: Name,
    /// The mode.
    pub mode: Mode,
    /// 0: try only. Otherwise queue; the leader proposes `Cancel` after so many ms.
    pub wait_ms: u32,
    /// Opt-in re-entrancy: the same session and owner get the same grant again, with a count.
    pub owner: Option<Arc<str>>,
    /// Refuse when so many wait already.
    pub max_waiters: u32,
    /// Keep the lock back so long if this holder fails.
    pub delay_ms: u32,
}

/// A release; only the session that holds the token may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// Session that asks.
    pub session: SessionId,
    /// Repeating it gives the same answer.
    pub request: RequestId,
    /// As in [`Acquire`].
    pub epoch: Option<u64>,
    /// The lock.
    pub name: Name,
    /// The grant's token.
    pub token: Token,
}

/// An acquire given up by its client; what became of it is undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withdrawal {
    /// Session that asked.
    pub session: SessionId,
    /// The acquire's request id.
    pub request: RequestId,
    /// Its lock.
    pub name: Name,
}

/// One operation of a log entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Open a session under an id that the leader drew.
    Open {
        session: SessionId,
        ttl_ms: u32,
        label: Arc<str>,
        /// Its locks are of this namespace.
        namespace: Name,
        /// Refuse when the namespace has so many in this group already.
        max_sessions: u32,
    },
    /// Close a session and free its locks.
    Close { session: SessionId },
    /// End a session whose TTL passed, as the leader of `epoch` measured it.
    Expire { session: SessionId, epoch: u64 },
    /// Take a lock or queue for it.
    Acquire(Acquire),
    /// Stop waiting (the wait's deadline passed).
    Cancel {
        session: SessionId,
        request: RequestId,
    },
    /// Give a lock back.
    Release(Release),
    /// The lock-delay after the failed grant `token` is over.
    EndDelay { token: Token },
    /// A new leader announces itself; its term becomes the epoch.
    Lead { term: u64 },
    /// The bucket map after the one of version `expected`, 0 for the first.
    SetMap { expected: u64, map: StoredMap },
    /// Undo an acquire: leave its queue, or give back its grant.
    Withdraw(Withdrawal),
}

impl Op {
    /// Does the leader propose it by itself because a time has passed? All of these may be applied twice.
    pub fn is_demanded_by_time(&self) -> bool {
        matches!(
            self,
            Op::Expire { .. } | Op::Cancel { .. } | Op::EndDelay { .. }
        )
    }
}

/// Why an operation changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// No such session (closed, expired or never opened).
    SessionUnknown,
    /// A session of that id exists already.
    SessionTaken,
    /// The namespace has as many sessions as it may.
    TooManySessions,
    /// The request's epoch is not the current one.
    StaleEpoch { current: u64 },
    /// A try-lock on a lock that is taken or awaited.
    Busy,
    /// The queue is full.
    QueueFull,
    /// The lock is kept back after a holder's failure and the request does not wait.
    Delayed,
    /// The token is not held by this session.
    NotHeld,
    /// A semaphore of another size is in use under this name.
    ModeMismatch,
    /// The session is of another namespace than the lock.
    OtherNamespace,
    /// The bucket map is of this version already, or the new one is not the next.
    StaleMap { current: u64 },
    /// The session used this request id for another operation.
    RequestReused,
    /// The session withdrew this acquire.
    Withdrawn,
}

/// The answer to one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Session opened.
    Opened { session: SessionId },
    /// Session ended; so many locks were freed.
    Ended { released: u32 },
    /// Lock held under `token`; `count` above 1 for re-entrant grants.
    Granted { token: Token, count: u32 },
    /// In the queue, with so many ahead. The grant comes as an [`Effect`].
    Queued { ahead: u32 },
    /// Given back; `remaining` re-entrant counts are still held.
    Released { remaining: u32 },
    /// Nothing to say.
    Done,
    /// Nothing changed.
    Refused(Refusal),
    /// The acquire is undone, and comes to nothing should it arrive still.
    Withdrawn(Undone),
}

/// What a withdrawal found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Undone {
    /// It was in the queue.
    Wait,
    /// It was granted under this token, which is given back.
    Grant(Token),
    /// Nothing of it was there.
    Nothing,
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// By its client.
    Closed,
    /// Its TTL passed.
    Expired,
}

/// What an operation did to others than its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// A waiter got its lock: push it.
    Woken {
        session: SessionId,
        request: RequestId,
        name: Name,
        token: Token,
    },
    /// A waiter left the queue without the lock (its deadline passed or its session ended).
    WaitEnded {
        session: SessionId,
        request: RequestId,
        name: Name,
        expired: bool,
    },
    /// A session ended with these grants.
    SessionEnded {
        session: SessionId,
        why: Ended,
        lost: Vec<(Name, Token)>,
    },
    /// A session was opened: arm its timer.
    SessionOpened { session: SessionId, ttl_ms: u32 },
    /// A waiter joined a queue: arm its deadline.
    Waiting {
        session: SessionId,
        request: RequestId,
        wait_ms: u32,
    },
    /// A lock is kept back: propose `EndDelay` after so many ms.
    Delayed { token: Token, delay_ms: u32 },
}
