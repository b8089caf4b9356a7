//! Lock of etcd: a lease, and a key in the lock's queue under it, by etcd's own
//! lock service. The fence is the key's create revision.
//!
//! One lease per client, kept alive by the grants that need it, and given up
//! after any answer that was lost: what it may still hold ends with it. Param
//! `bug`: `A29`, `A30` (see the `buggy` folder).

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::Mutex;

use super::session::Session;
use super::{
    BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, LockKind, Signals, Want, buggy,
};
use crate::protocol::{Fence, Mode};
use crate::wire::etcd::{EtcdLink, created_at, etcdserverpb as pb, exists, op};

pub const KIND: LockKind = LockKind {
    name: "etcd",
    about: "etcd: lease and lock service, fence = create revision of the lock's key",
    new,
};

/// How long an acquire that is not to wait stays in the queue.
const TRY: Duration = Duration::from_millis(100);

/// After this long without an answer the lock is looked for in the queue.
const LOOK: Duration = Duration::from_millis(10);

type Lease = Session<i64>;

struct Etcd {
    link: Arc<EtcdLink>,
    lease: Mutex<Option<Lease>>,
    timeout: Duration,
    signals: Signals,
    bug: Option<&'static str>,
}

fn new(cx: LockContext) -> Result<BoxedLock, ConfError> {
    let addrs: Vec<&str> = cx
        .system
        .endpoints
        .iter()
        .map(|e| e.addr.as_str())
        .collect();
    let bug = buggy::inline("etcd", &cx)?;
    let link = EtcdLink::new(&addrs, (cx.worker + cx.client) as usize, cx.timeout)?;
    Ok(Box::new(Etcd {
        link: Arc::new(link),
        lease: Mutex::new(None),
        timeout: cx.timeout,
        signals: cx.signals,
        bug,
    }))
}

fn name_of(key: &str) -> String {
    format!("fencepost/lock/{key}")
}

/// Key and create revision of a grant, as its owner names them.
fn parts(owner: &str) -> Result<(&str, i64), CallError> {
    owner
        .rsplit_once('#')
        .and_then(|(key, rev)| Some((key, rev.parse().ok()?)))
        .ok_or_else(|| CallError::definite(format!("not an owner of etcd: {owner}")))
}

/// The lease under which a key of the lock's queue was made: it ends the name.
fn lease_of(key: &str) -> Option<i64> {
    i64::from_str_radix(key.rsplit('/').next()?, 16).ok()
}

impl Etcd {
    async fn open(&self, ttl: Duration) -> Result<Lease, CallError> {
        let seconds = ttl.as_millis().div_ceil(1000) as i64;
        let sent = Instant::now();
        // A lease whose grant was lost holds nothing, and ends by itself.
        let (id, granted) = self
            .link
            .grant(seconds)
            .await
            .map_err(|e| CallError::definite(format!("no lease: {e}")))?;
        Ok(Session {
            id,
            ttl: Duration::from_secs(granted),
            sent,
        })
    }

    /// The client's lease, with at least half of its TTL left.
    async fn lease(&self, ttl: Duration) -> Result<Lease, CallError> {
        let mut slot = self.lease.lock().await;
        if let Some(known) = &*slot {
            if known.is_fresh() {
                return Ok(known.clone());
            }
            if let Ok(fresh) = self.keepalive(known.id).await {
                *slot = Some(fresh.clone());
                return Ok(fresh);
            }
        }
        *slot = None;
        let lease = self.open(ttl).await?;
        *slot = Some(lease.clone());
        Ok(lease)
    }

    async fn keepalive(&self, id: i64) -> Result<Lease, CallError> {
        let sent = Instant::now();
        match self.link.keepalive(id).await? {
            0 => Err(CallError::not_held()),
            seconds => Ok(Session {
                id,
                ttl: Duration::from_secs(seconds),
                sent,
            }),
        }
    }

    /// No later acquire uses this lease.
    async fn give_up(&self, id: i64) {
        self.lease.lock().await.take_if(|l| l.id == id);
    }

    async fn remember(&self, fresh: &Lease) {
        if let Some(known) = self
            .lease
            .lock()
            .await
            .as_mut()
            .filter(|l| l.id == fresh.id)
            && known.sent < fresh.sent
        {
            *known = fresh.clone();
        }
    }

    /// The key's create revision; `None` when it is gone.
    async fn created(&self, key: &str) -> Result<Option<i64>, CallError> {
        let request = pb::RangeRequest {
            key: key.into(),
            ..Default::default()
        };
        Ok(self
            .link
            .range(request)
            .await?
            .kvs
            .first()
            .map(|kv| kv.create_revision))
    }

    /// Waits in the queue, keeping the lease alive; `None`: still busy.
    async fn queue(&self, want: &Want, lease: &mut Lease) -> Result<Option<String>, CallError> {
        let name = name_of(&want.key);
        let lock = self
            .link
            .lock(&name, lease.id, want.wait.max(TRY) + self.timeout);
        tokio::pin!(lock);
        let until = Instant::now() + want.wait.max(TRY);
        let (mut next, mut look) = (lease.due(), Some(Instant::now() + LOOK));
        let mut waits = false;
        loop {
            let wake = look.unwrap_or(next).min(next).min(until);
            tokio::select! {
                biased;
                key = &mut lock => {
                    // The answer to the call is the one message that a waiter gets.
                    if waits && key.is_ok() {
                        self.signals.woken(want.request);
                    }
                    return key.map(|k| Some(String::from_utf8_lossy(&k).into_owned()));
                }
                () = tokio::time::sleep_until(wake.into()) => {}
            }
            let now = Instant::now();
            if now >= until {
                return Ok(None);
            }
            if look.take_if(|l| *l <= now).is_some() {
                let own = format!("{name}/{:x}", lease.id);
                if let Ok(Some(_)) = self.created(&own).await {
                    self.signals.queued(want.request);
                    waits = true;
                }
            }
            if now >= next {
                match self.keepalive(lease.id).await {
                    Ok(fresh) => *lease = fresh,
                    Err(e) if e == CallError::not_held() && self.bug != Some("A29") => {
                        return Err(CallError::definite("the lease ended in the queue"));
                    }
                    Err(_) => {}
                }
                next = lease.due().max(now + lease.ttl / 20);
            }
        }
    }

    /// Leaves the queue for good: with the lease goes all that it holds or would.
    async fn leave(&self, lease: &Lease) -> CallError {
        match self.link.revoke(lease.id).await {
            Ok(()) => CallError::busy(),
            Err(e) => CallError::unknown(format!("still in the queue: {e}")),
        }
    }
}

/// Deletes a key under one condition; it succeeds if that was met.
fn delete_if(key: &str, condition: pb::Compare) -> pb::TxnRequest {
    let delete = pb::DeleteRangeRequest { key: key.into() };
    pb::TxnRequest {
        compare: vec![condition],
        success: vec![op(pb::request_op::Request::RequestDeleteRange(delete))],
        failure: vec![],
    }
}

impl Etcd {
    /// A30 (etcd#22082): whatever key has the name now is deleted, and once more, later, where the
    /// answer was lost: by then the client may have locked again under the same lease and name.
    async fn release_by_name(&self, key: &str) -> Result<bool, CallError> {
        let txn = delete_if(key, exists(key));
        let answer = self.link.txn(txn.clone()).await;
        if matches!(answer, Err(CallError::Unknown(_))) {
            let (link, pause) = (self.link.clone(), self.timeout);
            tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                // Nobody waits for it.
                let _ = link.txn(txn).await;
            });
        }
        answer.map(|a| a.succeeded)
    }
}

#[async_trait]
impl LockClient for Etcd {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        if want.mode != Mode::Exclusive {
            return Err(CallError::definite("this lock has the exclusive mode only"));
        }
        let ttl = want
            .ttl
            .ok_or_else(|| CallError::definite("etcd needs a ttl_ms"))?;
        let began = Instant::now();
        let mut lease = self.lease(ttl).await?;
        let key = match self.queue(want, &mut lease).await {
            Ok(Some(key)) => key,
            Ok(None) => {
                self.give_up(lease.id).await;
                return Err(self.leave(&lease).await);
            }
            Err(e) => {
                self.give_up(lease.id).await;
                return Err(e);
            }
        };
        self.remember(&lease).await;
        let revision = match self.created(&key).await {
            Ok(Some(revision)) => revision,
            Ok(None) if self.bug != Some("A29") => {
                self.give_up(lease.id).await;
                return Err(CallError::definite("the lease ended in the queue"));
            }
            Ok(None) => 0,
            Err(e) => {
                self.give_up(lease.id).await;
                return Err(CallError::unknown(format!(
                    "locked, but its fence is unknown: {e}"
                )));
            }
        };
        let (ttl, sent) = lease.lease(began);
        Ok(Grant {
            key: want.key.clone(),
            mode: want.mode,
            owner: Arc::from(format!("{key}#{revision}")),
            fence: (revision > 0).then_some(Fence(revision.unsigned_abs())),
            ttl: Some(ttl),
            sent,
        })
    }

    async fn renew(&self, grant: &Grant, _ttl: Duration) -> Result<Duration, CallError> {
        let (key, _) = parts(&grant.owner)?;
        let id = lease_of(key).ok_or_else(|| CallError::definite("no lease in the owner"))?;
        match self.keepalive(id).await {
            Ok(fresh) => {
                self.remember(&fresh).await;
                Ok(fresh.ttl)
            }
            Err(e) => {
                if e == CallError::not_held() {
                    self.give_up(id).await;
                }
                Err(e)
            }
        }
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        let (key, revision) = parts(&grant.owner)?;
        if self.bug == Some("A30") {
            return self.release_by_name(key).await;
        }
        let answer = self
            .link
            .txn(delete_if(key, created_at(key, revision)))
            .await;
        if let (Err(_), Some(id)) = (&answer, lease_of(key)) {
            // Kept alive by later grants, the lease would hold this lock for ever.
            self.give_up(id).await;
        }
        answer.map(|a| a.succeeded)
    }

    async fn close(&self) {
        if let Some(lease) = self.lease.lock().await.take() {
            // What cannot be revoked ends by itself.
            let _ = self.link.revoke(lease.id).await;
        }
    }
}

#[cfg(test)]
#[path = "etcd_tests.rs"]
mod tests;
