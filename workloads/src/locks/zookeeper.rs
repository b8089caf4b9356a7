//! Lock of ZooKeeper, by the published recipe (zookeeper.apache.org,
//! "ZooKeeper Recipes and Solutions"): an ephemeral sequential node, whose name
//! carries a GUID so that it is found again when the answer to its creation was
//! lost; only the predecessor is watched. The fence is the node's czxid. Shared
//! locks by the same recipe.
//!
//! Param `bug`: `A37`, `A38`, `herd` (see the `buggy` folder).
//!
//! One session per client. The library prolongs it by pings of its own, which
//! tell nobody; what counts here as a renewal is `sync` and a look at the own
//! node, which the leader has answered.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode, Error, OneshotWatcher, SessionState};

use super::redis::random_owner;
use super::{
    BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, LockKind, Signals, Want, buggy,
};
use crate::protocol::{Fence, Mode};

pub const KIND: LockKind = LockKind {
    name: "zookeeper",
    about: "ZooKeeper: ephemeral sequential nodes, fence = czxid; exclusive and shared",
    new,
};

/// How long an acquire that is not to wait stays in the queue at most.
const TRY: Duration = Duration::from_millis(100);

/// A session and the grants that end with it.
struct Session {
    client: Client,
    asked: Duration,
    owners: std::sync::Mutex<Vec<Arc<str>>>,
}

struct ZooKeeper {
    cluster: String,
    session: tokio::sync::Mutex<Option<Arc<Session>>>,
    timeout: Duration,
    signals: Signals,
    bug: Option<&'static str>,
    /// What a client with the bug A38 calls its nodes.
    name: String,
}

fn new(cx: LockContext) -> Result<BoxedLock, ConfError> {
    let mut addrs: Vec<&str> = cx
        .system
        .endpoints
        .iter()
        .map(|e| e.addr.as_str())
        .collect();
    if addrs.is_empty() {
        return Err(ConfError("system \"zookeeper\" needs endpoints".into()));
    }
    let first = (cx.worker + cx.client) as usize % addrs.len();
    addrs.rotate_left(first);
    Ok(Box::new(ZooKeeper {
        cluster: addrs.join(","),
        session: tokio::sync::Mutex::new(None),
        timeout: cx.timeout,
        bug: buggy::inline("zookeeper", &cx)?,
        name: format!("{}-{}", cx.worker, cx.client),
        signals: cx.signals,
    }))
}

fn dir_of(key: &str) -> String {
    format!("/fencepost/lock/{}", key.replace('/', "%2F"))
}

/// A node of the queue: the word before its sequence number tells what it waits for.
#[derive(Debug, PartialEq, Eq)]
struct Node {
    sequence: i32,
    shared: bool,
    name: String,
}

impl Node {
    /// Reads `{guid}-read-0000000012`. The sequence is a signed 32-bit counter that wraps: it is
    /// compared by its distance, neither as text nor as a number.
    fn parse(name: &str) -> Option<Node> {
        let at = name.find("-read-").map(|i| (i + 6, true));
        let (from, shared) = at.or_else(|| name.find("-write-").map(|i| (i + 7, false)))?;
        Some(Node {
            sequence: name[from..].parse().ok()?,
            shared,
            name: name.to_owned(),
        })
    }
}

/// Where `own` stands: `Err` when it is gone, else the node to wait for.
fn predecessor(children: &[String], own: &str) -> Result<Option<String>, ()> {
    let nodes: Vec<Node> = children.iter().filter_map(|c| Node::parse(c)).collect();
    let me = nodes.iter().find(|n| n.name == own).ok_or(())?;
    let ahead = |n: &Node| me.sequence.wrapping_sub(n.sequence);
    Ok(nodes
        .iter()
        .filter(|n| ahead(n) > 0 && !(me.shared && n.shared))
        .min_by_key(|n| ahead(n))
        .map(|n| n.name.clone()))
}

fn failed(e: &Error) -> CallError {
    match e {
        Error::NoNode
        | Error::NoAuth
        | Error::NodeExists
        | Error::BadArguments(_)
        | Error::InvalidAcl
        | Error::AuthFailed
        | Error::SessionMoved
        | Error::NotReadOnly
        | Error::QuotaExceeded
        | Error::Throttled
        | Error::SessionExpired
        | Error::Unimplemented => CallError::definite(e.to_string()),
        _ => CallError::unknown(e.to_string()),
    }
}

impl ZooKeeper {
    async fn bounded<T>(
        &self,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, CallError> {
        match timeout(self.timeout, call).await {
            Ok(Ok(v)) => Ok(v),
            Ok(Err(e)) => Err(failed(&e)),
            Err(_) => Err(CallError::unknown("timeout")),
        }
    }

    /// The client's session, or a new one that asks for `ttl`.
    ///
    /// # Errors
    /// Definite: a session alone holds nothing.
    async fn session(&self, ttl: Option<Duration>) -> Result<Arc<Session>, CallError> {
        let mut slot = self.session.lock().await;
        let alive = |s: &Arc<Session>| {
            !matches!(
                s.client.state(),
                SessionState::Expired | SessionState::Closed | SessionState::AuthFailed
            )
        };
        if let Some(known) = slot.as_ref().filter(|s| alive(s))
            && ttl.is_none_or(|t| t == known.asked)
        {
            return Ok(known.clone());
        }
        let asked = ttl.unwrap_or(Duration::from_secs(6));
        let connect = Client::connector()
            .with_session_timeout(asked)
            .with_connection_timeout(self.timeout)
            .with_fail_eagerly()
            .connect(&self.cluster);
        let client = self
            .bounded(connect)
            .await
            .map_err(|e| CallError::definite(format!("no session: {e}")))?;
        let session = Arc::new(Session {
            client,
            asked,
            owners: std::sync::Mutex::default(),
        });
        tokio::spawn(watch(
            Arc::downgrade(&session),
            session.client.state_watcher(),
            self.signals.clone(),
        ));
        if let Some(old) = slot.replace(session.clone()) {
            old.end(&self.signals, "session ended");
        }
        Ok(session)
    }

    /// Ends a session of which it is unknown what it holds.
    async fn give_up(&self, session: &Arc<Session>) {
        self.session
            .lock()
            .await
            .take_if(|s| Arc::ptr_eq(s, session));
        session.end(&self.signals, "session given up");
    }

    /// Creates the own node; its name.
    async fn enqueue(&self, session: &Session, dir: &str, mode: Mode) -> Result<String, CallError> {
        let everyone = Acls::anyone_all();
        let word = if mode == Mode::Shared {
            "read"
        } else {
            "write"
        };
        let prefix = match self.bug {
            Some("A37") => format!("lock-{word}-"),
            Some("A38") => format!("{}-{word}-", self.name),
            _ => format!("{}-{word}-", random_owner()),
        };
        if self.bug == Some("A38")
            && let Ok(names) = self.bounded(session.client.list_children(dir)).await
            && let Some(own) = names.into_iter().find(|n| n.starts_with(&prefix))
        {
            return Ok(own);
        }
        let path = format!("{dir}/{prefix}");
        let options = CreateMode::EphemeralSequential.with_acls(everyone);
        let create = || async {
            let (_, sequence) = session.client.create(&path, b"", &options).await?;
            Ok(format!("{prefix}{sequence}"))
        };
        match timeout(self.timeout, create()).await {
            Ok(Ok(name)) => Ok(name),
            Ok(Err(Error::NoNode)) => {
                let persistent = CreateMode::Persistent.with_acls(everyone);
                self.bounded(session.client.mkdir(dir, &persistent)).await?;
                self.bounded(create()).await
            }
            Ok(Err(Error::ConnectionLoss)) if self.bug == Some("A37") => {
                self.bounded(create()).await
            }
            // The answer was lost, the session was not: the node is known by its GUID.
            Ok(Err(Error::ConnectionLoss)) => {
                let names = self.bounded(session.client.list_children(dir)).await;
                names
                    .unwrap_or_default()
                    .into_iter()
                    .find(|n| n.starts_with(&prefix))
                    .ok_or_else(|| CallError::unknown("connection lost while the node was created"))
            }
            Ok(Err(e)) => Err(failed(&e)),
            Err(_) => Err(CallError::unknown("timeout")),
        }
    }

    /// Waits until the own node is first; false when `until` came before.
    async fn wait(
        &self,
        session: &Session,
        dir: &str,
        own: &str,
        want: &Want,
        until: Instant,
    ) -> Result<bool, CallError> {
        let mut told = false;
        loop {
            let children = self.bounded(session.client.list_children(dir)).await?;
            let before = predecessor(&children, own)
                .map_err(|()| CallError::definite("the session ended in the queue"))?;
            let Some(before) = before else {
                return Ok(true);
            };
            if !told {
                self.signals.queued(want.request);
                told = true;
            }
            let Some(watcher) = self.watch(session, dir, &before).await? else {
                continue;
            };
            let event = tokio::time::timeout_at(until.into(), watcher.changed()).await;
            match event {
                Err(_) => return Ok(false),
                Ok(e)
                    if matches!(
                        e.session_state,
                        SessionState::Expired | SessionState::Closed
                    ) =>
                {
                    return Err(CallError::definite("the session ended in the queue"));
                }
                Ok(_) => self.signals.woken(want.request),
            }
        }
    }

    /// Watches the node ahead; `None` when it is gone.
    async fn watch(
        &self,
        session: &Session,
        dir: &str,
        before: &str,
    ) -> Result<Option<OneshotWatcher>, CallError> {
        if self.bug == Some("herd") {
            let listed = session.client.list_and_watch_children(dir);
            let (names, watcher) = self.bounded(listed).await?;
            return Ok(names.iter().any(|n| n == before).then_some(watcher));
        }
        let path = format!("{dir}/{before}");
        let (stat, watcher) = self
            .bounded(session.client.check_and_watch_stat(&path))
            .await?;
        Ok(stat.map(|_| watcher))
    }

    /// Takes the own node out of the queue.
    async fn leave(&self, session: &Arc<Session>, path: &str) -> CallError {
        match self.bounded(session.client.delete(path, None)).await {
            Ok(()) => CallError::busy(),
            Err(e) => {
                self.give_up(session).await;
                CallError::unknown(format!("still in the queue: {e}"))
            }
        }
    }
}

impl Session {
    fn owners(&self) -> std::sync::MutexGuard<'_, Vec<Arc<str>>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports all that was held under it as lost.
    fn end(&self, signals: &Signals, reason: &str) {
        let owners = std::mem::take(&mut *self.owners());
        for owner in owners {
            signals.lost(&owner, reason);
        }
    }
}

async fn watch(
    session: std::sync::Weak<Session>,
    mut states: zookeeper_client::StateWatcher,
    signals: Signals,
) {
    loop {
        let state = states.changed().await;
        let Some(session) = session.upgrade() else {
            return;
        };
        if matches!(
            state,
            SessionState::Expired | SessionState::Closed | SessionState::AuthFailed
        ) {
            session.end(&signals, "session expired");
            return;
        }
    }
}

#[async_trait]
impl LockClient for ZooKeeper {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        if want.mode == Mode::Semaphore {
            return Err(CallError::definite("this lock has no semaphores"));
        }
        let ttl = want
            .ttl
            .ok_or_else(|| CallError::definite("zookeeper needs a ttl_ms"))?;
        let until = Instant::now() + want.wait.max(TRY);
        let session = self.session(Some(ttl)).await?;
        let dir = dir_of(&want.key);
        // The creation is the last thing that surely prolonged the session.
        let sent = Instant::now();
        let own = match self.enqueue(&session, &dir, want.mode).await {
            Ok(own) => own,
            Err(e) => {
                if matches!(e, CallError::Unknown(_)) {
                    self.give_up(&session).await;
                }
                return Err(e);
            }
        };
        let path = format!("{dir}/{own}");
        match self.wait(&session, &dir, &own, want, until).await {
            Ok(true) => {}
            Ok(false) => return Err(self.leave(&session, &path).await),
            Err(e @ CallError::Definite(_)) => return Err(e),
            Err(e) => {
                self.give_up(&session).await;
                return Err(e);
            }
        }
        let stat = match self.bounded(session.client.check_stat(&path)).await {
            Ok(Some(stat)) => stat,
            Ok(None) => return Err(CallError::definite("the session ended in the queue")),
            Err(e) => {
                self.give_up(&session).await;
                return Err(CallError::unknown(format!(
                    "locked, but its fence is unknown: {e}"
                )));
            }
        };
        let owner: Arc<str> = path.into();
        session.owners().push(owner.clone());
        Ok(Grant {
            key: want.key.clone(),
            mode: want.mode,
            owner,
            fence: Some(Fence(stat.czxid.unsigned_abs())),
            ttl: Some(session.client.session_timeout()),
            sent,
        })
    }

    async fn renew(&self, grant: &Grant, _ttl: Duration) -> Result<Duration, CallError> {
        let session = self.session(None).await?;
        self.bounded(session.client.sync(&grant.owner)).await?;
        match self
            .bounded(session.client.check_stat(&grant.owner))
            .await?
        {
            Some(stat)
                if self.bug == Some("A38")
                    || stat.ephemeral_owner == session.client.session_id().0 =>
            {
                Ok(session.client.session_timeout())
            }
            _ => Err(CallError::not_held()),
        }
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        let session = self.session(None).await?;
        session.owners().retain(|o| *o != grant.owner);
        match timeout(self.timeout, session.client.delete(&grant.owner, None)).await {
            Ok(Ok(())) => Ok(true),
            Ok(Err(Error::NoNode)) => Ok(false),
            other => {
                // Kept alive, the session would hold this lock for ever.
                self.give_up(&session).await;
                Err(match other {
                    Ok(Err(e)) => failed(&e),
                    _ => CallError::unknown("timeout"),
                })
            }
        }
    }

    async fn close(&self) {
        self.session.lock().await.take();
    }
}

#[cfg(test)]
#[path = "zookeeper_tests.rs"]
mod tests;
