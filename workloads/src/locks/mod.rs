//! Lock clients: one file each, and one line in [`LOCKS`].
//!
//! A client makes one call per method call: it never retries behind the
//! caller's back, since a retry would turn one recorded operation into two.
//! Waiting for a busy lock (`Want::wait`) is part of the one acquire.

pub mod buggy;
mod etcd;
mod noop;
mod postgres;
mod raftlock;
mod redis;
mod redis_failover;
mod redlock;
mod session;
mod waiting;
mod zookeeper;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use crate::protocol::{Fence, Mode, Params, SystemConf};

/// What an acquire asks for.
#[derive(Clone, Debug)]
pub struct Want {
    pub key: Arc<str>,
    pub mode: Mode,
    /// Lease asked for; `None` for locks without one.
    pub ttl: Option<Duration>,
    /// How long to wait while the lock is busy; zero tries once.
    pub wait: Duration,
    pub permits: Option<u32>,
    /// Id of the request, to be named in [`Signals::queued`].
    pub request: u64,
}

/// A grant as the service gave it.
#[derive(Clone, Debug)]
pub struct Grant {
    pub key: Arc<str>,
    pub mode: Mode,
    /// Unique among all grants of all clients.
    pub owner: Arc<str>,
    pub fence: Option<Fence>,
    /// Lease as granted; `None` where the hold ends otherwise.
    pub ttl: Option<Duration>,
    /// When the call was sent that began or last extended the lease.
    pub sent: Instant,
}

/// How a call to a service or store went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It surely had no effect, and never will.
    #[error("{0}")]
    Definite(Arc<str>),
    /// It may have had an effect, or may have one yet. Every timeout is this.
    #[error("unknown: {0}")]
    Unknown(Arc<str>),
}

impl CallError {
    pub fn definite(why: impl AsRef<str>) -> Self {
        CallError::Definite(why.as_ref().into())
    }

    pub fn unknown(why: impl AsRef<str>) -> Self {
        CallError::Unknown(why.as_ref().into())
    }

    /// The lock is held by another.
    pub fn busy() -> Self {
        Self::definite("busy")
    }

    /// The grant is no longer ours.
    pub fn not_held() -> Self {
        Self::definite("not-held")
    }
}

/// One sequential caller of a lock service.
///
/// The watchdog may call `renew` while another call is under way, hence `&self`.
#[async_trait]
pub trait LockClient: Send + Sync {
    /// Takes the lock, waiting up to `want.wait` while it is busy.
    ///
    /// # Errors
    /// Definite `busy` when it stayed busy; unknown when the answer was lost.
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError>;

    /// Extends the lease of a grant; answers the lease as now granted.
    ///
    /// # Errors
    /// Definite `not-held` when the service says that the grant is over.
    async fn renew(&self, grant: &Grant, ttl: Duration) -> Result<Duration, CallError>;

    /// Gives the lock back; answers whether it was still held.
    ///
    /// # Errors
    /// Unknown when the answer was lost.
    async fn release(&self, grant: &Grant) -> Result<bool, CallError>;

    /// Ends the session, where the service has one.
    async fn close(&self) {}
}

/// Something that a client learned between calls.
#[derive(Clone, Debug)]
pub enum Signal {
    /// The acquire of this request id is in the service's queue.
    Queued(u64),
    /// A message of the service about this request's place in the queue came.
    Woken(u64),
    /// The grant of this owner is over.
    Lost { owner: Arc<str>, reason: Arc<str> },
}

/// Where a client reports what it learns between calls.
#[derive(Clone)]
pub struct Signals(Arc<dyn Fn(Signal) + Send + Sync>);

impl Signals {
    pub fn new(sink: impl Fn(Signal) + Send + Sync + 'static) -> Self {
        Signals(Arc::new(sink))
    }

    pub fn queued(&self, request: u64) {
        (self.0)(Signal::Queued(request));
    }

    /// Once for every such message, whatever it leads to: a herd shows in their number.
    pub fn woken(&self, request: u64) {
        (self.0)(Signal::Woken(request));
    }

    pub fn lost(&self, owner: &Arc<str>, reason: &str) {
        (self.0)(Signal::Lost {
            owner: owner.clone(),
            reason: reason.into(),
        });
    }
}

/// What a lock client is made from.
#[derive(Clone)]
pub struct LockContext {
    pub system: SystemConf,
    pub worker: u32,
    pub client: u32,
    /// Seeds the client's own choices (retry delays); owners are random anyway.
    pub seed: u64,
    /// Bound of one call to the service.
    pub timeout: Duration,
    pub signals: Signals,
}

/// A configuration that a client or store cannot work with.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfError(pub String);

/// A boxed client, as the registry makes it.
pub type BoxedLock = Box<dyn LockClient>;

/// One kind of lock client. Connections are made on first use, so that a
/// service that is down fails calls and not the start.
pub struct LockKind {
    pub name: &'static str,
    /// One line for `fencepost list`.
    pub about: &'static str,
    pub new: fn(LockContext) -> Result<BoxedLock, ConfError>,
}

/// Every lock client by name.
pub const LOCKS: &[LockKind] = &[
    redis::KIND,
    redis_failover::KIND,
    redlock::KIND,
    etcd::KIND,
    zookeeper::KIND,
    postgres::KIND,
    raftlock::KIND,
    noop::KIND,
];

/// The lock client of this name.
///
/// # Errors
/// An unknown name; the message lists the known ones.
pub fn find(name: &str) -> Result<&'static LockKind, ConfError> {
    LOCKS.iter().find(|k| k.name == name).ok_or_else(|| {
        let known: Vec<&str> = LOCKS.iter().map(|k| k.name).collect();
        ConfError(format!(
            "no lock client \"{name}\"; known: {}",
            known.join(", ")
        ))
    })
}

/// Reads one parameter, with a default where it is absent.
///
/// # Errors
/// A value of the wrong kind.
pub fn param<T: serde::de::DeserializeOwned>(
    params: &Params,
    name: &str,
    default: T,
) -> Result<T, ConfError> {
    match params.get(name) {
        None => Ok(default),
        Some(v) => serde_json::from_value(v.clone())
            .map_err(|e| ConfError(format!("parameter \"{name}\" = {v}: {e}"))),
    }
}

#[cfg(test)]
mod contention_tests;
#[cfg(test)]
mod herd_tests;
