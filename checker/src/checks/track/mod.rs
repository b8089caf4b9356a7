//! What every check needs to know at each event: open operations, grants and how long they are
//! certain, what workers surely believe, and which faults are in force.
//!
//! Memory is bounded by what is open, and for each key by the last `PAST` grants that ended: a grant
//! that is forgotten is never evidence against anybody.

mod faults;
mod grant;
mod known;
mod op;
mod step;

use std::collections::VecDeque;
use std::sync::Arc;

use fencepost_history::{Event, EventType, Value};
use hashbrown::HashMap;
use smallvec::SmallVec;

pub use faults::{Faults, Interval};
pub use grant::{Grant, GrantId};
pub use known::{Known, value_hash};
pub use op::{F, Mode, Op};

pub(crate) use step::was_held;

use crate::judge::facts::Facts;

pub type KeyId = u32;

/// Ended grants that are remembered, a key.
const PAST: usize = 64;
/// Live grants of one key above which those that lapsed are treated as ended.
const LIVE: usize = 64;

/// A moment of the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    pub index: u64,
    /// Nanoseconds since the run began.
    pub time: i64,
}

#[derive(Default)]
struct Book {
    live: Vec<GrantId>,
    past: VecDeque<GrantId>,
}

/// What an event was.
// One lives at a time, so a large variant costs nothing and a box would cost an allocation an event.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum What {
    /// An operation began; it is in [`Tracker::open`].
    Invoked(u64),
    Done(Op, EventType),
    /// The worker's acquire for this process is in the service's queue.
    Queued(u64),
    /// A message of the service about this process's queued acquire reached its worker.
    Woken(u64),
    Fault,
    Phase(Arc<str>),
    Exit(Option<u32>),
    Other,
}

/// What an event showed.
#[derive(Debug)]
pub struct Seen {
    pub now: Stamp,
    pub what: What,
    /// A grant became certain: an acquire was answered ok.
    pub granted: Option<GrantId>,
    /// A renewal was answered ok: of this grant, sent then; and whether the grant had lapsed before.
    pub renewed: Option<(GrantId, Stamp, bool)>,
    /// The renewal was of a grant that nobody knows; the sending stamp.
    pub renewed_unknown: Option<Stamp>,
    /// Its worker reported the loss of this grant, which it noticed no earlier than this.
    pub lost: Option<(GrantId, Stamp)>,
    /// What this event shows that workers believed.
    pub beliefs: SmallVec<[Belief; 2]>,
}

/// A worker surely believed in a grant, and had since it was granted, at this moment: belief
/// that has ended never comes back.
#[derive(Clone, Copy, Debug)]
pub struct Belief {
    pub grant: GrantId,
    pub at: Stamp,
    pub how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Listed in a claim that was made no earlier.
    Claimed,
    /// An operation under it took effect no earlier.
    Acted,
    /// Its loss was noticed no earlier.
    Noticed,
}

impl Belief {
    fn of(grant: GrantId, at: Stamp, how: How) -> Belief {
        Belief { grant, at, how }
    }
}

pub struct Tracker {
    ttl_default: Option<i64>,
    lease: bool,
    reentrant: bool,
    ends_with_connection: bool,
    margin: Box<dyn Fn(i64) -> i64 + Send>,
    keys: HashMap<Arc<str>, KeyId, foldhash::fast::FixedState>,
    names: Vec<Arc<str>>,
    books: Vec<Book>,
    grants: HashMap<GrantId, Grant, foldhash::fast::FixedState>,
    next_grant: GrantId,
    open: HashMap<u64, Op, foldhash::fast::FixedState>,
    /// The last claims of each worker: lower bound for claims that carry no stamp of their own.
    claimed: HashMap<u32, Stamp>,
    /// Where locks end with the connection: each worker surely lived then.
    alive: HashMap<u32, Stamp>,
    /// Acquires of unknown outcome, a key: how many, and the first invocation.
    unknown: HashMap<KeyId, (u64, Stamp)>,
    pub known: Known,
    pub faults: Faults,
}

impl Tracker {
    pub fn new(facts: &Facts) -> Tracker {
        let margins = facts.clone();
        let lease = facts.system.lease;
        Tracker {
            ttl_default: facts.lease.ttl_ms.filter(|_| lease).map(nanos),
            lease,
            reentrant: facts.system.reentrant,
            ends_with_connection: facts.system.ends_with_connection,
            margin: Box::new(move |ttl| margins.margin(ttl)),
            keys: HashMap::default(),
            names: Vec::new(),
            books: Vec::new(),
            grants: HashMap::default(),
            next_grant: 0,
            open: HashMap::default(),
            claimed: HashMap::new(),
            alive: HashMap::new(),
            unknown: HashMap::new(),
            known: Known::default(),
            faults: Faults::default(),
        }
    }

    pub fn grant(&self, id: GrantId) -> Option<&Grant> {
        self.grants.get(&id)
    }

    /// Grants of a key that have not ended, and those that ended lately.
    pub fn grants_of(&self, key: KeyId) -> impl Iterator<Item = &Grant> {
        let book = &self.books[key as usize];
        book.live
            .iter()
            .chain(&book.past)
            .filter_map(|id| self.grants.get(id))
    }

    /// Grants of a key that have not ended (their leases may have lapsed).
    pub fn live_of(&self, key: KeyId) -> impl Iterator<Item = &Grant> {
        let book = &self.books[key as usize];
        book.live.iter().filter_map(|id| self.grants.get(id))
    }

    /// Live grants of a key, and the last `n` that ended.
    pub fn recent_of(&self, key: KeyId, n: usize) -> impl Iterator<Item = &Grant> {
        let book = &self.books[key as usize];
        book.live
            .iter()
            .chain(book.past.iter().rev().take(n))
            .filter_map(|id| self.grants.get(id))
    }

    /// Whether an acquire of unknown outcome, or one that is open, may have granted this key
    /// to somebody whom no answer named.
    pub fn may_have_returned(&self, key: KeyId, except: u64) -> bool {
        self.unknown.contains_key(&key)
            || self
                .open
                .values()
                .any(|o| o.key == key && o.f == F::Acquire && o.process != except)
    }

    pub fn open(&self, process: u64) -> Option<&Op> {
        self.open.get(&process)
    }

    /// Operations that have not returned.
    pub fn open_ops(&self) -> impl Iterator<Item = &Op> {
        self.open.values()
    }

    /// First invocation of an acquire of this key whose outcome is unknown for good.
    pub fn unknown_acquire(&self, key: KeyId) -> Option<Stamp> {
        self.unknown.get(&key).map(|(_, first)| *first)
    }

    /// Keys seen so far are `0..keys()`.
    pub fn keys(&self) -> KeyId {
        self.names.len() as KeyId
    }

    pub fn key_name(&self, key: KeyId) -> &Arc<str> {
        &self.names[key as usize]
    }

    /// The key of this name, if any event named it.
    pub fn find_key(&self, name: &str) -> Option<KeyId> {
        self.keys.get(name).copied()
    }

    fn key(&mut self, name: Option<&Arc<str>>) -> (KeyId, Arc<str>) {
        let text = name.map_or("", |n| n);
        if let Some(id) = self.keys.get(text) {
            return (*id, self.names[*id as usize].clone());
        }
        let id = self.names.len() as KeyId;
        let name: Arc<str> = Arc::from(text);
        self.keys.insert(name.clone(), id);
        self.names.push(name.clone());
        self.books.push(Book::default());
        (id, name)
    }

    /// The grant that (owner, fence) names; what is missing of it matches anything.
    fn resolve(
        &self,
        key: KeyId,
        owner: &Value,
        fence: Option<u64>,
        process: Option<u64>,
    ) -> Option<GrantId> {
        let nameless = *owner == Value::Null && fence.is_none();
        let fits = |g: &Grant| {
            if nameless {
                return process == Some(g.process);
            }
            (*owner == Value::Null || g.owner == *owner) && (fence.is_none() || g.fence == fence)
        };
        let book = &self.books[key as usize];
        book.live
            .iter()
            .rev()
            .chain(book.past.iter().rev())
            .copied()
            .find(|id| self.grants.get(id).is_some_and(fits))
    }

    fn retire(&mut self, id: GrantId) {
        let Some(key) = self.grants.get(&id).map(|g| g.key) else {
            return;
        };
        let book = &mut self.books[key as usize];
        let Some(at) = book.live.iter().position(|g| *g == id) else {
            return;
        };
        book.live.remove(at);
        book.past.push_back(id);
        if book.past.len() > PAST
            && let Some(old) = book.past.pop_front()
        {
            self.grants.remove(&old);
        }
    }

    /// Nothing held by `worker` (by anybody: `None`) is certain from here on.
    fn end_holds(&mut self, worker: Option<u32>, now: Stamp) {
        let ids: Vec<GrantId> = self.books.iter().flat_map(|b| b.live.clone()).collect();
        for id in ids {
            if let Some(g) = self.grants.get_mut(&id)
                && (worker.is_none() || g.worker == worker)
            {
                g.end_at(now);
            }
        }
    }
}

/// 36 years. No stamp or lease is taken to be farther from 0, so that a few of them can be summed.
const FAR: i64 = 1 << 60;

/// Nanoseconds of so many milliseconds.
pub(crate) fn nanos(ms: f64) -> i64 {
    within((ms * 1e6) as i64)
}

fn within(ns: i64) -> i64 {
    ns.clamp(-FAR, FAR)
}

impl Seen {
    fn nothing(e: &Event) -> Seen {
        Seen {
            now: Stamp {
                index: e.index,
                time: within(e.time),
            },
            what: What::Other,
            granted: None,
            renewed: None,
            renewed_unknown: None,
            lost: None,
            beliefs: SmallVec::new(),
        }
    }
}
