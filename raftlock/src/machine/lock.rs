//! One lock: its holders and its queue.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Mode, RequestId, SessionId, Token};

/// One grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Session that holds it.
    pub session: SessionId,
    /// The request that it was granted to.
    pub request: RequestId,
    /// Its fencing token.
    pub token: Token,
    /// Mode of the grant.
    pub mode: Mode,
    /// Re-entrant count, 1 at first.
    pub count: u32,
    /// Lock-delay if this holder fails, ms.
    pub delay_ms: u32,
    /// Leader's wall clock at the grant, ms since the Unix epoch; for display.
    pub granted_at_ms: u64,
    /// Owner id of a re-entrant grant.
    pub owner: Option<Arc<str>>,
}

/// One client in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// Session that waits.
    pub session: SessionId,
    /// Its request.
    pub request: RequestId,
    /// Mode it wants.
    pub mode: Mode,
    /// How long it wants to wait in all, ms.
    pub wait_ms: u32,
    /// Lock-delay of the grant to come, ms.
    pub delay_ms: u32,
    /// Owner id of a re-entrant grant.
    pub owner: Option<Arc<str>>,
}

/// Holders and queue of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// Current grants.
    pub holders: Vec<Holder>,
    /// Queue in order of arrival; keyed so that one in the middle can leave in O(log n).
    pub queue: BTreeMap<u64, Waiter>,
    /// Kept back since the grant with this token failed.
    pub delay: Option<Token>,
}

impl Lock {
    /// May `mode` be granted beside the present holders?
    pub fn admits(&self, mode: Mode) -> bool {
        if self.delay.is_some() {
            return false;
        }
        match mode {
            Mode::Exclusive => self.holders.is_empty(),
            Mode::Shared => self
                .holders
                .iter()
                .all(|holder| holder.mode == Mode::Shared),
            Mode::Semaphore(permits) => {
                self.holders.len() < permits as usize
                    && self.holders.iter().all(|holder| holder.mode == mode)
            }
        }
    }

    /// Is a semaphore of another size in use?
    pub fn mismatches(&self, mode: Mode) -> bool {
        let Mode::Semaphore(permits) = mode else {
            return false;
        };
        let other = |held: &Mode| matches!(held, Mode::Semaphore(size) if *size != permits);
        self.holders
            .first()
            .is_some_and(|holder| other(&holder.mode))
            || self
                .queue
                .first_key_value()
                .is_some_and(|(_, waiter)| other(&waiter.mode))
    }

    /// Nobody holds it, awaits it or is kept from it.
    pub fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty() && self.delay.is_none()
    }
}
