//! The leader's timers, on the monotonic clock: session TTLs, waits' deadlines, lock-delays.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use foldhash::{HashMap, HashSet};
use tokio::time::Instant;

use crate::flaw::{self, Flaw};
use crate::machine::{Effect, Machine, Op, RequestId, SessionId, Token};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Session(SessionId),
    Wait(SessionId, RequestId),
    Delay(Token),
}

struct Lease {
    ttl: Duration,
    until: Instant,
}

/// Timers of a group while this node leads it.
#[derive(Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(Instant, Due)>>,
    leases: HashMap<SessionId, Lease>,
    expiring: HashSet<SessionId>,
}

impl Timers {
    /// A new leader's timers: every session, wait and delay starts anew at its full length, since how much of it the
    /// old leader saw pass is not known here.
    pub fn of(machine: &Machine, now: Instant) -> Self {
        let mut timers = Timers::default();
        for (id, session) in machine.sessions() {
            let ttl_ms = if flaw::active(Flaw::NoExtension) {
                1
            } else {
                session.ttl_ms
            };
            timers.open(id, ttl_ms, now);
        }
        for (_, lock) in machine.locks() {
            for waiter in lock.queue.values() {
                timers.push(
                    now,
                    waiter.wait_ms,
                    Due::Wait(waiter.session, waiter.request),
                );
            }
        }
        for (token, delay_ms) in machine.delayed() {
            timers.push(now, delay_ms, Due::Delay(token));
        }
        timers
    }

    /// Follows what was applied.
    pub fn effects(&mut self, effects: &[Effect], now: Instant) {
        for effect in effects {
            match effect {
                Effect::SessionOpened { session, ttl_ms } => self.open(*session, *ttl_ms, now),
                Effect::SessionEnded { session, .. } => {
                    self.leases.remove(session);
                    self.expiring.remove(session);
                }
                Effect::Waiting {
                    session,
                    request,
                    wait_ms,
                } => {
                    self.push(now, *wait_ms, Due::Wait(*session, *request));
                }
                Effect::Delayed { token, delay_ms } => {
                    self.push(now, *delay_ms, Due::Delay(*token))
                }
                Effect::Woken { .. } | Effect::WaitEnded { .. } => {}
            }
        }
    }

    fn open(&mut self, id: SessionId, ttl_ms: u32, now: Instant) {
        let ttl = Duration::from_millis(u64::from(ttl_ms));
        self.leases.insert(
            id,
            Lease {
                ttl,
                until: now + ttl,
            },
        );
        self.heap.push(Reverse((now + ttl, Due::Session(id))));
    }

    fn push(&mut self, now: Instant, ms: u32, due: Due) {
        self.heap
            .push(Reverse((now + Duration::from_millis(u64::from(ms)), due)));
    }

    /// Prolongs a session from now; `None` if it is unknown or its expiry was already proposed.
    pub fn prolong(&mut self, id: SessionId, now: Instant) -> Option<u32> {
        if self.expiring.contains(&id) {
            return None;
        }
        let lease = self.leases.get_mut(&id)?;
        lease.until = lease.until.max(now + lease.ttl);
        Some(u32::try_from(lease.ttl.as_millis()).unwrap_or(u32::MAX))
    }

    /// The session's TTL in ms if it still lives and its expiry was not proposed.
    pub fn alive(&self, id: SessionId) -> Option<u32> {
        let lease = self
            .leases
            .get(&id)
            .filter(|_| !self.expiring.contains(&id))?;
        Some(u32::try_from(lease.ttl.as_millis()).unwrap_or(u32::MAX))
    }

    /// This process stood still for `gap`: keepalives that arrived meanwhile are still unread, so every lease is
    /// lengthened by as much. A leader may always grant more time, never less.
    pub fn lengthen(&mut self, gap: Duration) {
        for lease in self.leases.values_mut() {
            lease.until += gap;
        }
    }

    /// When the next timer is due.
    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// The operations that are due now.
    pub fn due(&mut self, now: Instant, epoch: u64) -> Vec<Op> {
        let mut ops = Vec::new();
        while let Some(Reverse((at, due))) = self.heap.peek().copied() {
            if at > now {
                break;
            }
            self.heap.pop();
            match due {
                Due::Session(session) => match self.leases.get(&session) {
                    Some(lease) if lease.until > now => {
                        self.heap.push(Reverse((lease.until, due)));
                    }
                    Some(_) if self.expiring.insert(session) => {
                        ops.push(Op::Expire { session, epoch })
                    }
                    _ => {}
                },
                Due::Wait(session, request) => ops.push(Op::Cancel { session, request }),
                Due::Delay(token) => ops.push(Op::EndDelay { token }),
            }
        }
        ops
    }
}
