//! The workers' sessions, what is known of each, and who holds what.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use fencepost_workloads::protocol::Init;

use crate::worker::Session;

use super::lock_name;

/// What the core knows of one worker.
#[derive(Debug, Default)]
pub struct Known {
    pub name: String,
    /// `w0`: its name in the history.
    pub process: Arc<str>,
    /// Faults that keep it from running now.
    pub pauses: Vec<String>,
    /// When it last began to run again.
    pub resumed: i64,
    pub expect_exit: bool,
    /// Said hello and has not ended.
    pub ready: bool,
    pub pinged: Option<u64>,
    pub init: Option<Box<Init>>,
    /// Its output closed; its exit is not known yet.
    pub closed: Option<i64>,
}

pub struct Staff {
    pub sessions: Vec<Option<Session>>,
    pub known: Vec<Known>,
}

impl Staff {
    pub fn new(workers: usize) -> Self {
        let known = |n: usize| Known {
            process: format!("w{n}").into(),
            ..Known::default()
        };
        Staff {
            sessions: (0..workers).map(|_| None).collect(),
            known: (0..workers).map(known).collect(),
        }
    }

    pub fn is_paused(&self, worker: usize) -> bool {
        !self.known[worker].pauses.is_empty()
    }

    pub fn expect_exit(&mut self, worker: usize) {
        if let Some(k) = self.known.get_mut(worker) {
            k.expect_exit = true;
        }
    }

    pub fn all_gone(&self) -> bool {
        self.sessions.iter().all(Option::is_none)
    }

    pub fn all_ready(&self) -> bool {
        self.known.iter().all(|k| k.ready)
    }

    pub fn names(&self) -> Vec<String> {
        self.known.iter().map(|k| k.name.clone()).collect()
    }
}

/// Who holds and who waits for each lock, as acknowledged so far. Read by faults that hit
/// the holder or a waiter.
#[derive(Debug)]
pub struct Board {
    locks: Vec<Arc<str>>,
    state: Mutex<HashMap<Arc<str>, Seats>>,
}

#[derive(Debug, Default)]
struct Seats {
    holder: Option<u32>,
    waiters: Vec<u32>,
}

impl Board {
    pub fn new(locks: u32) -> Self {
        Board {
            locks: (0..locks).map(lock_name).collect(),
            state: Mutex::new(HashMap::new()),
        }
    }

    /// Name of a lock of the load.
    pub fn lock(&self, n: u32) -> Arc<str> {
        self.locks[n as usize % self.locks.len()].clone()
    }

    /// Names of all locks of the load.
    pub fn locks(&self) -> &[Arc<str>] {
        &self.locks
    }

    fn with<T: Default>(&self, key: &Arc<str>, f: impl FnOnce(&mut Seats) -> T) -> T {
        let Ok(mut state) = self.state.lock() else {
            return T::default();
        };
        if let Some(seats) = state.get_mut(key) {
            return f(seats);
        }
        f(state.entry(key.clone()).or_default())
    }

    pub fn waits(&self, key: &Arc<str>, worker: u32) {
        self.with(key, |s| s.waiters.push(worker));
    }

    /// An acquire was answered.
    pub fn answered(&self, key: &Arc<str>, worker: u32, granted: bool) {
        self.with(key, |s| {
            if let Some(at) = s.waiters.iter().position(|w| *w == worker) {
                s.waiters.swap_remove(at);
            }
            if granted {
                s.holder = Some(worker);
            }
        });
    }

    /// A grant of this worker is over.
    pub fn leaves(&self, key: &Arc<str>, worker: u32) {
        self.with(key, |s| s.holder = s.holder.filter(|h| *h != worker));
    }

    /// The holder of a lock, or of the lock granted last by name when none is named.
    pub fn holder(&self, lock: Option<&str>) -> Option<u32> {
        self.find(lock, |s| s.holder)
    }

    pub fn waiter(&self, lock: Option<&str>) -> Option<u32> {
        self.find(lock, |s| s.waiters.first().copied())
    }

    fn find(&self, lock: Option<&str>, f: impl Fn(&Seats) -> Option<u32>) -> Option<u32> {
        let state = self.state.lock().ok()?;
        match lock {
            Some(l) => f(state.get(l)?),
            None => {
                let mut all: Vec<_> = state.iter().collect();
                all.sort_by_key(|(k, _)| (*k).clone());
                all.into_iter().find_map(|(_, s)| f(s))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_board_follows_grants() {
        let board = Board::new(2);
        let key: Arc<str> = "L0".into();
        board.waits(&key, 1);
        assert_eq!(
            (board.holder(Some("L0")), board.waiter(Some("L0"))),
            (None, Some(1))
        );
        board.answered(&key, 1, true);
        assert_eq!((board.holder(None), board.waiter(None)), (Some(1), None));
        board.leaves(&key, 2);
        assert_eq!(board.holder(Some("L0")), Some(1));
        board.leaves(&key, 1);
        assert_eq!(board.holder(Some("L0")), None);
    }
}
