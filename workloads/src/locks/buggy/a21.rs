//! A21 (sidekiq-unique-jobs#580): a reaper takes a live lock for an orphan. Here every
//! waiter is one: a lock that stayed busy for `gap_ms` (default 100) is deleted.

use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::Bug;
use crate::locks::redis::{RedisLock, keys, random_owner};
use crate::locks::{BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, Want};

pub const BUG: Bug = Bug {
    id: "A21",
    about: "a lock that stays busy is deleted, whoever holds it",
    new,
};

struct Seeded(RedisLock, Duration);

fn new(cx: &LockContext) -> Result<BoxedLock, ConfError> {
    Ok(Box::new(Seeded(RedisLock::new(cx)?, super::gap(cx)?)))
}

#[async_trait]
impl LockClient for Seeded {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        let (owner, began) = (random_owner(), Instant::now());
        let patience = if self.1.is_zero() {
            Duration::from_millis(100)
        } else {
            self.1
        };
        let waiting = self.0.retry.within(want.wait);
        loop {
            if let Some(grant) = self.0.try_once(want, &owner).await? {
                return Ok(grant);
            }
            if began.elapsed() > patience {
                let reap = redis::cmd("DEL").arg(keys(&want.key).lock).to_owned();
                self.0.link.call::<()>(&reap).await?;
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
