//! The lock state machine: entries in, replies and effects out.
//!
//! It has no clock, no I/O and no randomness. Time enters as entries: the node that leads measures
//! the time and proposes `Expire`, `Cancel` and `EndDelay`; every replica applies them at
//! the same place in the log. That is why a replica that replays the log years later reaches the same state.
//!
//! Fencing tokens: `max(previous + 1, log position)`, with `previous` the highest token of the whole group, not of
//! the one name. A name without holders can therefore be forgotten and its next token is still higher.

mod acquire;
mod lock;
mod release;
mod session;
mod shards;
mod snapshot;
mod types;
mod withdraw;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_modes;
#[cfg(test)]
mod tests_retries;
#[cfg(test)]
mod tests_withdraw;

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::HashMap;

use crate::buckets::{BucketMap, StoredMap};

pub use lock::{Holder, Lock, Waiter};
pub use session::Session;
use shards::Shards;
pub use types::*;

/// One group's locks and sessions. A clone is made at once, whatever the size.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Machine {
    locks: Shards<Name, Lock>,
    sessions: Shards<SessionId, Session>,
    /// How many of them each namespace has.
    counts: HashMap<Name, u32>,
    /// Locks kept back because their holder failed: token of the failed grant → (name, delay in ms).
    delayed: BTreeMap<Token, (Name, u32)>,
    /// Waits with a deadline are re-armed by a new leader; the queue order is this counter.
    next_wait: u64,
    /// Term of the leader whose `Lead` entry was applied last.
    epoch: u64,
    /// Highest token handed out.
    high: Token,
    /// Raised by every restore from a backup; the top 16 bits of tokens.
    restore_epoch: u16,
    /// Log position of the entry being applied.
    position: u64,
    /// Wall time of the entry being applied, as the leader wrote it into the entry; for display only.
    at_ms: u64,
    /// Locks with at least one holder.
    held: u64,
    /// Clients in queues.
    waiting: u64,
    /// In the group that keeps it.
    map: Option<StoredMap>,
    /// For the seeded flaw `TokenFromMemory`: not in snapshots.
    #[cfg(test)]
    unsaved: u64,
}

impl Machine {
    /// An empty machine.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies one log entry: `position` is its index in the log, `at_ms` the leader's wall clock when it was
    /// proposed (stored for display, never compared). Returns one reply for each operation, in order;
    /// what happens to others is added to `effects`.
    pub fn apply(
        &mut self,
        position: u64,
        at_ms: u64,
        ops: &[Op],
        effects: &mut Vec<Effect>,
    ) -> Vec<Reply> {
        self.position = position;
        self.at_ms = at_ms;
        ops.iter().map(|op| self.apply_one(op, effects)).collect()
    }

    fn apply_one(&mut self, op: &Op, effects: &mut Vec<Effect>) -> Reply {
        match op {
            Op::Open {
                session,
                ttl_ms,
                label,
                namespace,
                max_sessions,
            } => {
                let opened = Session::new(*ttl_ms, label, namespace);
                self.open(*session, opened, *max_sessions, effects)
            }
            Op::Close { session } => self.end_session(*session, Ended::Closed, effects),
            Op::Expire { session, epoch } if *epoch == self.epoch => {
                self.end_session(*session, Ended::Expired, effects)
            }
            Op::Expire { .. } => Reply::Refused(Refusal::StaleEpoch {
                current: self.epoch,
            }),
            Op::Acquire(acquire) => self.acquire(acquire, effects),
            Op::Cancel { session, request } => self.cancel(*session, *request, effects),
            Op::Release(release) => self.release(release, effects),
            Op::EndDelay { token } => self.end_delay(*token, effects),
            Op::Lead { term } => {
                self.epoch = self.epoch.max(*term);
                Reply::Done
            }
            Op::SetMap { expected, map } => self.set_map(*expected, map),
            Op::Withdraw(withdrawal) => self.withdraw(withdrawal, effects),
        }
    }

    fn set_map(&mut self, expected: u64, next: &StoredMap) -> Reply {
        let current = self.map.as_ref().map_or(0, |map| map.map().version);
        let new = next.map();
        if current != expected || new.version != expected + 1 || !new.is_whole() {
            return Reply::Refused(Refusal::StaleMap { current });
        }
        self.map = Some(next.clone());
        Reply::Done
    }

    /// The bucket map, if this is its group and it was made.
    pub fn map(&self) -> Option<&Arc<BucketMap>> {
        self.map.as_ref().map(StoredMap::map)
    }

    /// The next fencing token: above every earlier one and not below the log position.
    fn next_token(&mut self) -> Token {
        #[cfg(test)]
        if crate::flaw::active(crate::flaw::Flaw::TokenFromMemory) {
            self.unsaved += 1;
            return self.unsaved;
        }
        let floor = (u64::from(self.restore_epoch) << 48) | self.position;
        self.high = self.high.saturating_add(1).max(floor);
        self.high
    }

    /// Makes it the beginning of a cluster restored from a backup: its tokens are above all of the lost history. Terms
    /// begin anew, so the epoch does. What is kept of sessions lives for a full TTL under the first leader.
    pub fn restore(&mut self, restore_epoch: u16, keep_sessions: bool) {
        self.restore_epoch = restore_epoch;
        self.epoch = 0;
        if !keep_sessions {
            self.sessions.clear();
            self.counts.clear();
            self.locks.clear();
            self.delayed.clear();
            (self.held, self.waiting) = (0, 0);
        }
    }

    /// How often it was restored from a backup, as the operators count it.
    pub fn restore_epoch(&self) -> u16 {
        self.restore_epoch
    }

    /// The epoch: the term of the last leader that announced itself.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The highest fencing token handed out so far.
    pub fn highest_token(&self) -> Token {
        self.high
    }

    /// The lock of that name, if it has holders, waiters or a delay.
    pub fn lock(&self, name: &str) -> Option<&Lock> {
        self.locks.get(name)
    }

    /// The session of that id, while it lives.
    pub fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    /// All live sessions, in no order.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.sessions.iter().map(|(id, session)| (*id, session))
    }

    /// All locks that are held, awaited or delayed, in no order.
    pub fn locks(&self) -> impl Iterator<Item = (&Name, &Lock)> {
        self.locks.iter()
    }

    /// Locks kept back after a failed holder: (token of the failed grant, delay in ms).
    pub fn delayed(&self) -> impl Iterator<Item = (Token, u32)> + '_ {
        self.delayed.iter().map(|(token, (_, ms))| (*token, *ms))
    }

    /// Counts for metrics.
    pub fn counts(&self) -> Counts {
        Counts {
            sessions: self.sessions.len() as u64,
            held: self.held,
            waiting: self.waiting,
        }
    }

    /// Is `token` a current grant of `name`? (Chubby's sequencer check.)
    pub fn token_is_current(&self, name: &str, token: Token) -> bool {
        self.locks
            .get(name)
            .is_some_and(|lock| lock.holders.iter().any(|holder| holder.token == token))
    }

    /// Drops a lock that nobody holds, awaits or is kept from.
    fn forget_if_idle(&mut self, name: &Name) {
        if self.locks.get(name).is_some_and(Lock::is_idle) {
            self.locks.remove(name);
        }
    }

    /// The one shared copy of a name, so that a million locks do not store it thrice.
    fn intern(&self, name: &Name) -> Name {
        self.locks
            .get_key_value(name)
            .map_or_else(|| Arc::clone(name), |(known, _)| Arc::clone(known))
    }
}

/// Sizes of a machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Live sessions.
    pub sessions: u64,
    /// Locks with at least one holder.
    pub held: u64,
    /// Clients in queues.
    pub waiting: u64,
}
