//! No lock at all: every call succeeds at once. It measures what the harness
//! itself costs, and shows the checks a service that excludes nobody.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::{BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, LockKind, Want};
use crate::protocol::Fence;

pub const KIND: LockKind = LockKind {
    name: "noop",
    about: "no lock: grants everything at once (harness overhead, and a control that must fail)",
    new,
};

/// One counter for all clients of the process.
static GRANTS: AtomicU64 = AtomicU64::new(0);

struct Noop {
    worker: u32,
}

fn new(cx: LockContext) -> Result<BoxedLock, ConfError> {
    Ok(Box::new(Noop { worker: cx.worker }))
}

#[async_trait]
impl LockClient for Noop {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        let n = GRANTS.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(Grant {
            key: want.key.clone(),
            mode: want.mode,
            owner: format!("w{}-{n}", self.worker).into(),
            fence: Some(Fence(n)),
            ttl: want.ttl,
            sent: Instant::now(),
        })
    }

    async fn renew(&self, _grant: &Grant, ttl: Duration) -> Result<Duration, CallError> {
        Ok(ttl)
    }

    async fn release(&self, _grant: &Grant) -> Result<bool, CallError> {
        Ok(true)
    }
}
