//! What happens to a group's locks, counted and told to those who watch. Counted by the node that proposed it, so that
//! the sum over all replicas counts everything once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use tokio::sync::broadcast;

use crate::machine::{Effect, Ended, Name, Op, Refusal, Reply, SessionId, Token, Undone};
use crate::meter::Times;

/// Events kept for a watcher that is slow; older ones are lost to it, and it is told how many.
const BACKLOG: usize = 8192;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A lock was granted.
    Granted,
    /// A grant was given back.
    Released,
    /// A grant ended because its session was closed.
    Closed,
    /// A grant ended because its session expired.
    Expired,
    /// An acquire, release or withdrawal was refused.
    Refused,
    /// A wait's deadline passed, or its session ended.
    WaitEnded,
}

/// One event.
#[derive(Debug, Clone)]
pub struct Happened {
    /// What.
    pub what: What,
    /// The leader's wall clock, ms since the Unix epoch.
    pub at_ms: u64,
    /// The lock.
    pub lock: Name,
    /// The session.
    pub session: SessionId,
    /// The grant's token.
    pub token: Option<Token>,
    /// Why it was refused.
    pub refusal: Option<Refusal>,
}

/// Counts of a group on this node.
#[derive(Debug)]
pub struct Watch {
    /// Grants.
    pub grants: AtomicU64,
    /// Releases.
    pub releases: AtomicU64,
    /// Sessions that expired.
    pub expiries: AtomicU64,
    /// Grants that ended because their session expired.
    pub expired_held: AtomicU64,
    /// Acquires and releases refused.
    pub refusals: AtomicU64,
    /// From a proposal to its application.
    pub commits: Times,
    events: broadcast::Sender<Arc<Happened>>,
}

impl Default for Watch {
    fn default() -> Self {
        Watch {
            grants: AtomicU64::new(0),
            releases: AtomicU64::new(0),
            expiries: AtomicU64::new(0),
            expired_held: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            commits: Times::default(),
            events: broadcast::channel(BACKLOG).0,
        }
    }
}

impl Watch {
    /// Events from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Happened>> {
        self.events.subscribe()
    }

    /// Follows one entry that this node proposed.
    pub(super) fn applied(&self, at_ms: u64, ops: &[Op], replies: &[Reply], effects: &[Effect]) {
        for (op, reply) in ops.iter().zip(replies) {
            self.operation(at_ms, op, *reply);
        }
        for effect in effects {
            self.effect(at_ms, effect);
        }
    }

    fn operation(&self, at_ms: u64, op: &Op, reply: Reply) {
        let (lock, session, asked) = match op {
            Op::Acquire(ask) => (&ask.name, ask.session, None),
            Op::Release(ask) => (&ask.name, ask.session, Some(ask.token)),
            Op::Withdraw(ask) => (&ask.name, ask.session, None),
            _ => return,
        };
        let (what, count, token, refusal) = match reply {
            Reply::Granted { token, .. } => (What::Granted, &self.grants, Some(token), None),
            Reply::Released { .. } => (What::Released, &self.releases, asked, None),
            Reply::Withdrawn(Undone::Grant(token)) => {
                (What::Released, &self.releases, Some(token), None)
            }
            Reply::Refused(why) => (What::Refused, &self.refusals, asked, Some(why)),
            _ => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
        self.tell(|| Happened {
            what,
            at_ms,
            lock: Name::clone(lock),
            session,
            token,
            refusal,
        });
    }

    fn effect(&self, at_ms: u64, effect: &Effect) {
        let plain = |what, lock: &Name, session, token| Happened {
            what,
            at_ms,
            lock: Name::clone(lock),
            session,
            token,
            refusal: None,
        };
        match effect {
            Effect::Woken {
                session,
                name,
                token,
                ..
            } => {
                self.grants.fetch_add(1, Ordering::Relaxed);
                self.tell(|| plain(What::Granted, name, *session, Some(*token)));
            }
            Effect::WaitEnded { session, name, .. } => {
                self.tell(|| plain(What::WaitEnded, name, *session, None));
            }
            Effect::SessionEnded { session, why, lost } => {
                let what = match why {
                    Ended::Closed => What::Closed,
                    Ended::Expired => What::Expired,
                };
                if *why == Ended::Expired {
                    self.expiries.fetch_add(1, Ordering::Relaxed);
                    self.expired_held
                        .fetch_add(lost.len() as u64, Ordering::Relaxed);
                }
                for (name, token) in lost {
                    self.tell(|| plain(what, name, *session, Some(*token)));
                }
            }
            Effect::SessionOpened { .. } | Effect::Waiting { .. } | Effect::Delayed { .. } => {}
        }
    }

    /// Nothing is made where nobody watches.
    fn tell(&self, event: impl FnOnce() -> Happened) {
        if self.events.receiver_count() > 0 {
            let _ = self.events.send(Arc::new(event()));
        }
    }
}
