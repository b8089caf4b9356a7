//! The machine as bytes and back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::buckets::StoredMap;
use crate::flaw::{self, Flaw};

use super::{Lock, Machine, Name, Session, SessionId, Token};

/// Everything a replica needs to go on from here.
#[derive(Serialize, Deserialize)]
struct Image {
    epoch: u64,
    high: Token,
    restore_epoch: u16,
    next_wait: u64,
    delayed: BTreeMap<Token, (Name, u32)>,
    locks: Vec<(Name, Lock)>,
    sessions: Vec<(SessionId, Session)>,
    map: Option<StoredMap>,
}

/// Same fields, borrowed: a million locks are not copied to be written.
#[derive(Serialize)]
struct ImageRef<'a> {
    epoch: u64,
    high: Token,
    restore_epoch: u16,
    next_wait: u64,
    delayed: &'a BTreeMap<Token, (Name, u32)>,
    locks: Vec<(&'a Name, &'a Lock)>,
    sessions: Vec<(SessionId, &'a Session)>,
    map: &'a Option<StoredMap>,
}

impl Machine {
    /// The whole state as bytes (postcard), the same bytes for equal states.
    pub fn to_bytes(&self) -> Result<Vec<u8>, postcard::Error> {
        let mut locks: Vec<_> = self.locks.iter().collect();
        locks.sort_unstable_by(|left, right| left.0.cmp(right.0));
        let mut sessions: Vec<_> = self.sessions().collect();
        sessions.sort_unstable_by_key(|(id, _)| *id);
        postcard::to_stdvec(&ImageRef {
            epoch: self.epoch,
            high: self.high,
            restore_epoch: self.restore_epoch,
            next_wait: self.next_wait,
            delayed: &self.delayed,
            locks,
            sessions,
            map: &self.map,
        })
    }

    /// Reads what [`Machine::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, postcard::Error> {
        let image: Image = postcard::from_bytes(bytes)?;
        let mut machine = Machine {
            epoch: image.epoch,
            high: image.high,
            restore_epoch: image.restore_epoch,
            next_wait: image.next_wait,
            delayed: image.delayed,
            map: image.map,
            ..Machine::default()
        };
        for (name, lock) in image.locks {
            machine.held += u64::from(!lock.holders.is_empty());
            machine.waiting += lock.queue.len() as u64;
            machine.locks.insert(name, lock);
        }
        if !flaw::active(Flaw::SnapshotWithoutSessions) {
            for (id, session) in image.sessions {
                machine.insert_session(id, session);
            }
        }
        machine.share_names();
        Ok(machine)
    }

    /// Lets sessions point to the locks' own copies of their names again.
    fn share_names(&mut self) {
        let locks = &self.locks;
        let shared = |name: &mut Name| {
            if let Some((known, _)) = locks.get_key_value(name) {
                *name = Name::clone(known);
            }
        };
        for session in self.sessions.values_mut() {
            session.held.values_mut().for_each(shared);
            session
                .waits
                .values_mut()
                .for_each(|(name, _)| shared(name));
        }
    }
}
