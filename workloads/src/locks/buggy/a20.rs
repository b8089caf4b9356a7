//! A20 (redbeat#208): an error of the acquire is swallowed, and the code goes on as if it
//! held the lock.

use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::Bug;
use crate::locks::redis::{RedisLock, exclusive_ttl, grant, random_owner};
use crate::locks::{BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, Want};

pub const BUG: Bug = Bug {
    id: "A20",
    about: "an error of the acquire counts as a grant",
    new,
};

struct Seeded(RedisLock);

fn new(cx: &LockContext) -> Result<BoxedLock, ConfError> {
    Ok(Box::new(Seeded(RedisLock::new(cx)?)))
}

#[async_trait]
impl LockClient for Seeded {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        let (ttl, sent) = (exclusive_ttl(want)?, Instant::now());
        match self.0.acquire(want).await {
            Err(e) if e != CallError::busy() => Ok(grant(want, &random_owner(), None, ttl, sent)),
            other => other,
        }
    }

    async fn renew(&self, grant: &Grant, ttl: Duration) -> Result<Duration, CallError> {
        self.0.renew(grant, ttl).await
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        self.0.release(grant).await
    }
}
