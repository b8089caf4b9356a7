//! A5 (redsync#168): the owner is a constant. Every owner check passes for everyone.

use std::time::Duration;

use async_trait::async_trait;

use super::Bug;
use crate::locks::redis::RedisLock;
use crate::locks::{BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, Want};

pub const BUG: Bug = Bug {
    id: "A5",
    about: "the owner is the lock's name",
    new,
};

struct Seeded(RedisLock);

fn new(cx: &LockContext) -> Result<BoxedLock, ConfError> {
    Ok(Box::new(Seeded(RedisLock::new(cx)?)))
}

#[async_trait]
impl LockClient for Seeded {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        let waiting = self.0.retry.within(want.wait);
        loop {
            if let Some(grant) = self.0.try_once(want, &want.key).await? {
                return Ok(grant);
            }
            if !waiting.again().await {
                return Err(CallError::busy());
            }
        }
    }

    async fn renew(&self, grant: &Grant, ttl: Duration) -> Result<Duration, CallError> {
        self.0.renew(grant, ttl).await
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        self.0.release(grant).await
    }
}
