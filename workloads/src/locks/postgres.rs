//! Locks of PostgreSQL. They have no lease: a hold ends with its connection.
//!
//! Param `variant`: `session` (advisory lock of the session, the default),
//! `transaction` (advisory lock of a transaction that stays open), `row`
//! (`SELECT … FOR UPDATE`), `none` (no lock at all: the store compares and
//! sets). The fence is drawn from a sequence once the lock is held: sequences
//! are not rolled back, so it never repeats.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio_postgres::types::Type;

use super::redis::random_owner;
use super::{
    BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, LockKind, Signals, Want,
    buggy, param,
};
use crate::protocol::{Fence, Mode};
use crate::wire::postgres::{PgAddr, PgConn};

pub const KIND: LockKind = LockKind {
    name: "postgres",
    about: "PostgreSQL: session or transaction advisory lock, row lock, or none; fence from a sequence",
    new,
};

/// Everybody may run it at once: it takes a lock of its own.
pub(super) const SETUP: &str = "
BEGIN;
SELECT pg_advisory_xact_lock(4711);
CREATE SEQUENCE IF NOT EXISTS fencepost_fence;
CREATE TABLE IF NOT EXISTS fencepost_lock (key text PRIMARY KEY);
COMMIT;
SET client_min_messages = error";

#[derive(Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Variant {
    Session,
    Transaction,
    Row,
    None,
}

type Held = HashMap<Arc<str>, PgConn>;

struct Postgres {
    addr: PgAddr,
    variant: Variant,
    idle: Mutex<Vec<PgConn>>,
    held: Arc<Mutex<Held>>,
    signals: Signals,
}

fn new(cx: LockContext) -> Result<BoxedLock, ConfError> {
    if let Some(bug) = buggy::of_client(&cx)? {
        return buggy::make("postgres", buggy::POSTGRES, &bug, &cx);
    }
    let Some(first) = cx.system.endpoints.first() else {
        return Err(ConfError("system \"postgres\" needs an endpoint".into()));
    };
    Ok(Box::new(Postgres {
        addr: PgAddr::new(&first.addr, &cx.system.params, cx.timeout)?,
        variant: param(&cx.system.params, "variant", Variant::Session)?,
        idle: Mutex::default(),
        held: Arc::default(),
        signals: cx.signals,
    }))
}

/// The number that stands for a name (64-bit FNV-1a).
pub(super) fn number(key: &str) -> i64 {
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.cast_signed()
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Postgres {
    async fn connection(&self) -> Result<PgConn, CallError> {
        loop {
            let idle = lock(&self.idle).pop();
            match idle {
                Some(conn) if conn.is_open() => return Ok(conn),
                Some(_) => {}
                None => return self.addr.connect(SETUP).await,
            }
        }
    }

    fn in_transaction(&self) -> bool {
        matches!(self.variant, Variant::Transaction | Variant::Row)
    }

    /// Waits for the lock on `conn`; what is held afterwards ends with it.
    async fn take(&self, conn: &PgConn, want: &Want) -> Result<Fence, CallError> {
        // Zero would mean to wait for ever.
        let wait = want.wait.max(Duration::from_millis(1));
        let begin = if self.in_transaction() { "BEGIN;" } else { "" };
        if self.variant == Variant::Row {
            // Before the transaction: a row that it made others could not see, nor share.
            let insert = "INSERT INTO fencepost_lock VALUES ($1) ON CONFLICT DO NOTHING";
            let key: &str = &want.key;
            conn.many(insert, &[(&key, Type::TEXT)]).await?;
        }
        conn.run(&format!("{begin} SET lock_timeout = {}", wait.as_millis()))
            .await?;
        let shared = want.mode == Mode::Shared;
        let name = number(&want.key);
        let key: &str = &want.key;
        match self.variant {
            Variant::Session | Variant::Transaction => {
                let xact = if self.in_transaction() { "xact_" } else { "" };
                let shared = if shared { "_shared" } else { "" };
                let sql = format!("SELECT pg_advisory_{xact}lock{shared}($1)");
                conn.one(&sql, &[(&name, Type::INT8)], wait).await?;
            }
            Variant::Row => {
                let kind = if shared { "SHARE" } else { "UPDATE" };
                let sql = format!("SELECT key FROM fencepost_lock WHERE key = $1 FOR {kind}");
                conn.one(&sql, &[(&key, Type::TEXT)], wait).await?;
            }
            Variant::None => {}
        }
        let row = conn
            .one("SELECT nextval('fencepost_fence')", &[], Duration::ZERO)
            .await;
        // Whatever went wrong, the lock may be held as long as the connection lasts.
        let row = row.map_err(|e| CallError::unknown(e.to_string()))?;
        Ok(Fence(row.get::<_, i64>(0).unsigned_abs()))
    }

    /// Keeps a connection that holds a lock, and reports the loss when it ends.
    fn hold(&self, owner: &Arc<str>, conn: PgConn) {
        let closed = conn.closed.clone();
        lock(&self.held).insert(owner.clone(), conn);
        let (held, signals, owner) = (self.held.clone(), self.signals.clone(), owner.clone());
        tokio::spawn(async move {
            closed.cancelled().await;
            if lock(&held).remove(&owner).is_some() {
                signals.lost(&owner, "connection lost");
            }
        });
    }

    fn grant(&self, want: &Want, owner: Arc<str>, fence: Option<Fence>, sent: Instant) -> Grant {
        Grant {
            key: want.key.clone(),
            mode: want.mode,
            owner,
            fence,
            ttl: None,
            sent,
        }
    }
}

#[async_trait]
impl LockClient for Postgres {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        if want.mode == Mode::Semaphore {
            return Err(CallError::definite("this lock has no semaphores"));
        }
        let (owner, sent): (Arc<str>, _) = (random_owner().into(), Instant::now());
        if self.variant == Variant::None {
            return Ok(self.grant(want, owner, None, sent));
        }
        let conn = self.connection().await?;
        match self.take(&conn, want).await {
            Ok(fence) => {
                self.hold(&owner, conn);
                Ok(self.grant(want, owner, Some(fence), sent))
            }
            Err(e) => {
                let undone = !self.in_transaction() || conn.run("ROLLBACK").await.is_ok();
                if undone && matches!(e, CallError::Definite(_)) {
                    lock(&self.idle).push(conn);
                }
                Err(e)
            }
        }
    }

    async fn renew(&self, _grant: &Grant, _ttl: Duration) -> Result<Duration, CallError> {
        Err(CallError::definite("postgres has no leases to renew"))
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        if self.variant == Variant::None {
            return Ok(true);
        }
        // Without its connection nothing is held any more.
        let Some(conn) = lock(&self.held).remove(&grant.owner) else {
            return Ok(false);
        };
        let held = match self.variant {
            Variant::Transaction | Variant::Row => conn.run("COMMIT").await.map(|()| true),
            Variant::Session | Variant::None => {
                let shared = if grant.mode == Mode::Shared {
                    "_shared"
                } else {
                    ""
                };
                let sql = format!("SELECT pg_advisory_unlock{shared}($1)");
                let name = number(&grant.key);
                let row = conn.one(&sql, &[(&name, Type::INT8)], Duration::ZERO).await;
                row.map(|row| row.get(0))
            }
        };
        if held.is_ok() {
            lock(&self.idle).push(conn);
        }
        held
    }

    async fn close(&self) {
        lock(&self.idle).clear();
        lock(&self.held).clear();
    }
}

#[cfg(test)]
#[path = "postgres_tests.rs"]
mod tests;
