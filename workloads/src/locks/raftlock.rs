//! Client of raftlock, the lock service beside this crate: over its HTTP API, and over a
//! stream where an acquire waits, since that tells when it is in the queue.
//!
//! One session per client, namespace and group, kept alive by the grants that need it: the
//! watchdog's renewal is a keepalive of the session. A grant's lease is what is
//! left of the session's TTL when the acquire begins, since the service counts
//! from the last keepalive and not from the grant.
//!
//! A session that may hold what nobody releases any more is left to expire: kept alive, it would hold that for good.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use raftlock_client::{AcquireOptions, Api, CallError as ApiError, Mode as ApiMode, Outcome};
use tokio::sync::Mutex;

use super::{
    BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, LockKind, Signals, Want,
};
use crate::protocol::{Fence, Mode};

pub const KIND: LockKind = LockKind {
    name: "raftlock",
    about: "raftlock: sessions, FIFO waiters, fence from the log position",
    new,
};

type Session = super::session::Session<Arc<str>>;

/// A session's namespace and group: its locks are of both.
type Place = (Arc<str>, u32);

#[derive(Default)]
struct Sessions {
    by_place: HashMap<Place, Session>,
    group_of: HashMap<Arc<str>, u32>,
}

struct Raftlock {
    api: Api,
    label: String,
    sessions: Mutex<Sessions>,
    requests: AtomicU64,
    signals: Signals,
}

fn new(cx: LockContext) -> Result<BoxedLock, ConfError> {
    let endpoints: Vec<String> = cx.system.endpoints.iter().map(|e| e.addr.clone()).collect();
    let api = Api::new(&endpoints, cx.timeout).map_err(|e| ConfError(e.to_string()))?;
    // Clients start at different nodes, as a fleet would.
    for _ in 0..cx.client as usize % endpoints.len() {
        api.next_node();
    }
    Ok(Box::new(Raftlock {
        api,
        label: format!("w{}c{}", cx.worker, cx.client),
        sessions: Mutex::default(),
        requests: AtomicU64::new(1),
        signals: cx.signals,
    }))
}

fn failed<T>(outcome: Outcome<T>) -> Result<T, CallError> {
    match outcome {
        Outcome::Ok(v) => Ok(v),
        Outcome::DefiniteFail(e) => Err(CallError::definite(word(&e))),
        Outcome::Unknown(e) => Err(CallError::unknown(word(&e))),
    }
}

fn word(e: &ApiError) -> String {
    match e.code.as_str() {
        "busy" | "wait_timeout" => "busy".into(),
        _ => e.to_string(),
    }
}

fn session_is_gone<T>(outcome: &Outcome<T>) -> bool {
    matches!(outcome, Outcome::DefiniteFail(e) if e.retry == raftlock_client::Retry::NewSession)
}

/// Session and token of a grant, as its owner names them.
fn parts(owner: &str) -> Result<(&str, u64), CallError> {
    owner
        .rsplit_once('#')
        .and_then(|(s, t)| Some((s, t.parse().ok()?)))
        .ok_or_else(|| CallError::definite(format!("not an owner of raftlock: {owner}")))
}

/// What stands before the first `/` of a lock's name.
fn namespace_of(key: &str) -> &str {
    key.split_once('/').map_or("default", |(first, _)| first)
}

impl Raftlock {
    fn request(&self) -> Option<u64> {
        Some(self.requests.fetch_add(1, Ordering::Relaxed))
    }

    /// A session for `key` with at least half of its TTL left.
    async fn session(&self, key: &Arc<str>, ttl: Duration) -> Result<Session, CallError> {
        let mut all = self.sessions.lock().await;
        let namespace: Arc<str> = namespace_of(key).into();
        let place = all.group_of.get(key).map(|g| (namespace.clone(), *g));
        if let Some(place) = place
            && let Some(known) = all.by_place.get(&place).cloned()
        {
            if known.is_fresh() {
                return Ok(known);
            }
            if let Ok(fresh) = self.keepalive(&known).await {
                all.by_place.insert(place, fresh.clone());
                return Ok(fresh);
            }
        }
        let sent = Instant::now();
        let ttl_ms = ttl.as_millis() as u64;
        // What an unknown opening leaves behind holds nothing and expires: no effect on locks.
        let info = failed(
            self.api
                .create_session(ttl_ms, &self.label, Some(key))
                .await,
        )
        .map_err(|e| CallError::definite(format!("no session: {e}")))?;
        let session = Session {
            id: info.session.into(),
            ttl: Duration::from_millis(info.ttl_ms),
            sent,
        };
        all.group_of.insert(key.clone(), info.group);
        all.by_place
            .insert((namespace, info.group), session.clone());
        Ok(session)
    }

    async fn keepalive(&self, session: &Session) -> Result<Session, CallError> {
        let sent = Instant::now();
        let outcome = self.api.keepalive(&session.id).await;
        if session_is_gone(&outcome) {
            return Err(CallError::not_held());
        }
        let alive = failed(outcome)?;
        Ok(Session {
            id: session.id.clone(),
            ttl: Duration::from_millis(alive.ttl_ms),
            sent,
        })
    }

    async fn forget(&self, id: &str) {
        self.sessions
            .lock()
            .await
            .by_place
            .retain(|_, s| &*s.id != id);
    }

    async fn remember(&self, fresh: &Session) {
        let mut all = self.sessions.lock().await;
        if let Some(s) = all.by_place.values_mut().find(|s| s.id == fresh.id) {
            s.sent = s.sent.max(fresh.sent);
            s.ttl = fresh.ttl;
        }
    }

    /// Waits in the service's queue and keeps the session alive meanwhile.
    async fn wait(&self, want: &Want, session: &mut Session) -> Outcome<raftlock_client::Grant> {
        let options = AcquireOptions {
            mode: match (want.mode, want.permits) {
                (Mode::Exclusive, _) => ApiMode::Exclusive,
                (Mode::Shared, _) => ApiMode::Shared,
                (Mode::Semaphore, permits) => ApiMode::Semaphore(permits.unwrap_or(1)),
            },
            wait_ms: want.wait.as_millis() as u64,
            request_id: self.request(),
            ..AcquireOptions::default()
        };
        let id = session.id.clone();
        let acquire = async {
            if options.wait_ms == 0 {
                return self.api.acquire(&want.key, &id, &options).await;
            }
            let mut waits = false;
            let queued = |_| {
                // Told once; what the service pushes after that is a wake-up.
                match std::mem::replace(&mut waits, true) {
                    false => self.signals.queued(want.request),
                    true => self.signals.woken(want.request),
                }
            };
            let outcome = self
                .api
                .acquire_queued(&want.key, &id, &options, queued)
                .await;
            if waits && matches!(outcome, Outcome::Ok(_)) {
                self.signals.woken(want.request);
            }
            outcome
        };
        tokio::pin!(acquire);
        let mut next = session.due();
        loop {
            tokio::select! {
                biased;
                outcome = &mut acquire => return outcome,
                () = tokio::time::sleep_until(next.into()) => {}
            }
            let kept = tokio::select! {
                biased;
                outcome = &mut acquire => return outcome,
                kept = self.keepalive(session) => kept,
            };
            match kept {
                Ok(fresh) => {
                    next = fresh.due();
                    *session = fresh;
                }
                // A dead session ends the wait by itself.
                Err(_) => next = Instant::now() + session.ttl / 20,
            }
        }
    }
}

#[async_trait]
impl LockClient for Raftlock {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        let ttl = want
            .ttl
            .filter(|t| !t.is_zero())
            .ok_or_else(|| CallError::definite("raftlock needs a ttl_ms above 0"))?;
        let began = Instant::now();
        let mut session = self.session(&want.key, ttl).await?;
        let outcome = self.wait(want, &mut session).await;
        self.remember(&session).await;
        if session_is_gone(&outcome) || matches!(outcome, Outcome::Unknown(_)) {
            self.forget(&session.id).await;
        }
        let got = failed(outcome)?;
        let (ttl, sent) = session.lease(began);
        Ok(Grant {
            key: want.key.clone(),
            mode: want.mode,
            owner: format!("{}#{}", session.id, got.token).into(),
            fence: Some(Fence(got.token)),
            ttl: Some(ttl),
            sent,
        })
    }

    async fn renew(&self, grant: &Grant, _ttl: Duration) -> Result<Duration, CallError> {
        let (id, _) = parts(&grant.owner)?;
        let session = Session {
            id: id.into(),
            ttl: grant.ttl.unwrap_or_default(),
            sent: grant.sent,
        };
        match self.keepalive(&session).await {
            Ok(fresh) => {
                self.remember(&fresh).await;
                Ok(fresh.ttl)
            }
            Err(e) => {
                if e == CallError::not_held() {
                    self.forget(id).await;
                }
                Err(e)
            }
        }
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        let (id, token) = parts(&grant.owner)?;
        let outcome = self
            .api
            .release(&grant.key, id, token, self.request())
            .await;
        if session_is_gone(&outcome) {
            self.forget(id).await;
            return Ok(false);
        }
        match outcome {
            Outcome::DefiniteFail(e) if e.code == "not_held" => Ok(false),
            Outcome::Ok(_) => Ok(true),
            other => {
                self.forget(id).await;
                failed(other).map(|_| true)
            }
        }
    }

    async fn close(&self) {
        let sessions: Vec<Session> = self
            .sessions
            .lock()
            .await
            .by_place
            .drain()
            .map(|(_, s)| s)
            .collect();
        for session in sessions {
            // What cannot be closed expires by itself.
            let _ = self.api.close(&session.id).await;
        }
    }
}
