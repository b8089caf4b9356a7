//! A47 (pgbouncer#102): the session's advisory lock is taken through a pool that lends its backends
//! for one transaction at a time. The lock stays with the backend: the next client that gets it
//! enters the lock once more, and an unlock on another backend frees nothing.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio_postgres::types::Type;

use super::Bug;
use crate::locks::postgres::{SETUP, number};
use crate::locks::redis::random_owner;
use crate::locks::{BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, Want};
use crate::protocol::{Fence, Mode};
use crate::wire::postgres::{PgAddr, PgConn};

pub const BUG: Bug = Bug {
    id: "A47",
    about: "a session's lock through a pool of backends",
    new,
};

/// Idle backends of all clients of this process, by server.
static POOL: LazyLock<Mutex<HashMap<String, Vec<PgConn>>>> = LazyLock::new(Mutex::default);

struct Seeded {
    server: String,
    addr: PgAddr,
}

fn new(cx: &LockContext) -> Result<BoxedLock, ConfError> {
    let Some(first) = cx.system.endpoints.first() else {
        return Err(ConfError("system \"postgres\" needs an endpoint".into()));
    };
    Ok(Box::new(Seeded {
        server: first.addr.clone(),
        addr: PgAddr::new(&first.addr, &cx.system.params, cx.timeout)?,
    }))
}

impl Seeded {
    async fn borrow(&self) -> Result<PgConn, CallError> {
        loop {
            let idle = POOL
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_mut(&self.server)
                .and_then(Vec::pop);
            match idle {
                Some(conn) if conn.is_open() => return Ok(conn),
                Some(_) => {}
                None => return self.addr.connect(SETUP).await,
            }
        }
    }

    fn give_back(&self, conn: PgConn) {
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        pool.entry(self.server.clone()).or_default().push(conn);
    }

    async fn take(conn: &PgConn, want: &Want) -> Result<u64, CallError> {
        let wait = want.wait.max(Duration::from_millis(1));
        conn.run(&format!("SET lock_timeout = {}", wait.as_millis()))
            .await?;
        let name = number(&want.key);
        let lock = "SELECT pg_advisory_lock($1)";
        conn.one(lock, &[(&name, Type::INT8)], wait).await?;
        let next = "SELECT nextval('fencepost_fence')";
        let row = conn.one(next, &[], Duration::ZERO).await;
        let row = row.map_err(|e| CallError::unknown(e.to_string()))?;
        Ok(row.get::<_, i64>(0).unsigned_abs())
    }
}

#[async_trait]
impl LockClient for Seeded {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        if want.mode != Mode::Exclusive {
            return Err(CallError::definite(
                "this client has the exclusive mode only",
            ));
        }
        let (conn, sent) = (self.borrow().await?, Instant::now());
        let fence = Self::take(&conn, want).await?;
        self.give_back(conn);
        Ok(Grant {
            key: want.key.clone(),
            mode: want.mode,
            owner: random_owner().into(),
            fence: Some(Fence(fence)),
            ttl: None,
            sent,
        })
    }

    async fn renew(&self, _grant: &Grant, _ttl: Duration) -> Result<Duration, CallError> {
        Err(CallError::definite("postgres has no leases to renew"))
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        let conn = self.borrow().await?;
        let name = number(&grant.key);
        let unlock = "SELECT pg_advisory_unlock($1)";
        let row = conn
            .one(unlock, &[(&name, Type::INT8)], Duration::ZERO)
            .await?;
        self.give_back(conn);
        Ok(row.get(0))
    }
}
