//! A bound on the connections of clients: without one, whoever opens enough of them takes the file descriptors that the log
//! needs. Where all places are taken, the connection that has asked for nothing for the longest time gives way to a new one, so
//! that those who connect and say nothing keep nobody out.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// Open files left to the log, snapshots and peers.
const RESERVED: u64 = 512;

/// Raises the process's limit of open files as far as it may, and says how many connections of clients it leaves room for.
pub fn room(wanted: u32) -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid rlimit for the length of the calls.
    let known = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && {
            let raised = libc::rlimit {
                rlim_cur: limit.rlim_max,
                ..limit
            };
            if libc::setrlimit(libc::RLIMIT_NOFILE, &raised) == 0 {
                limit = raised;
            }
            true
        }
    };
    let wanted = wanted.max(1) as usize;
    if !known {
        return wanted;
    }
    let left = limit.rlim_cur - RESERVED.min(limit.rlim_cur / 2);
    wanted
        .min(usize::try_from(left).unwrap_or(usize::MAX))
        .max(1)
}

/// So many connections at once.
pub struct Places {
    limit: usize,
    now: Mutex<Now>,
}

#[derive(Default)]
struct Now {
    open: usize,
    /// The last turn given out; they begin at 1.
    turns: u64,
    /// Those without a request, by how long.
    idle: BTreeMap<u64, CancellationToken>,
}

impl Places {
    /// All free.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Places {
            limit,
            now: Mutex::default(),
        })
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more connection, which has no request yet. None if all are taken by connections with requests.
    pub fn enter(self: &Arc<Self>) -> Option<(Place, Arc<Seat>)> {
        let seat = Seat {
            places: Arc::clone(self),
            turn: AtomicU64::new(0),
            give_way: CancellationToken::new(),
        };
        {
            let mut now = self.now();
            if now.open >= self.limit {
                let (_, longest) = now.idle.pop_first()?;
                longest.cancel();
            }
            now.open += 1;
        }
        seat.idle();
        let place = Place(Arc::clone(self));
        Some((place, Arc::new(seat)))
    }
}

/// A connection's place, until it is dropped.
pub struct Place(Arc<Places>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.now().open -= 1;
    }
}

/// Whether a connection has a request.
pub struct Seat {
    places: Arc<Places>,
    turn: AtomicU64,
    /// Cancelled when it has to close.
    pub give_way: CancellationToken,
}

impl Seat {
    /// Its request is answered.
    pub fn idle(&self) {
        let mut now = self.places.now();
        now.turns += 1;
        let turn = now.turns;
        let before = self.turn.swap(turn, Ordering::Relaxed);
        now.idle.remove(&before);
        now.idle.insert(turn, self.give_way.clone());
    }

    /// It has a whole request.
    pub fn busy(&self) {
        let turn = self.turn.load(Ordering::Relaxed);
        self.places.now().idle.remove(&turn);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.busy();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_longest_idle_gives_way_and_nobody_with_a_request() {
        let places = Places::new(3);
        let all: Vec<_> = (0..3).map(|_| places.enter().unwrap()).collect();
        let gone = |at: usize| all[at].1.give_way.is_cancelled();
        all[0].1.busy();
        all[1].1.busy();
        all[1].1.idle();
        let fourth = places.enter().unwrap();
        assert_eq!([gone(0), gone(1), gone(2)], [false, false, true]);
        fourth.1.busy();
        let _fifth = places.enter().unwrap();
        assert_eq!([gone(0), gone(1)], [false, true]);
        all[0].1.idle();
        all[0].1.busy();
        drop(_fifth);
        assert_eq!(places.now().idle.len(), 0);
        assert_eq!(places.now().open, 4, "those that gave way are not gone yet");
        assert!(places.enter().is_none(), "all have requests");
        drop(all);
        assert_eq!(places.now().open, 1);
        assert!(places.enter().is_some());
    }
}
