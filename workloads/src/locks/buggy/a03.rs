//! A3 (redis-py PR#1031): release is GET, compare, DEL, and not atomic. The lease may end
//! between them.

use std::time::Duration;

use async_trait::async_trait;

use super::Bug;
use crate::locks::redis::{RedisLock, keys};
use crate::locks::{BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, Want};

pub const BUG: Bug = Bug {
    id: "A3",
    about: "release is GET, compare, DEL",
    new,
};

struct Seeded(RedisLock, Duration);

fn new(cx: &LockContext) -> Result<BoxedLock, ConfError> {
    Ok(Box::new(Seeded(RedisLock::new(cx)?, super::gap(cx)?)))
}

#[async_trait]
impl LockClient for Seeded {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        self.0.acquire(want).await
    }

    async fn renew(&self, grant: &Grant, ttl: Duration) -> Result<Duration, CallError> {
        self.0.renew(grant, ttl).await
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        let lock = keys(&grant.key).lock;
        let owner: Option<String> = self.0.link.call(redis::cmd("GET").arg(&lock)).await?;
        if owner.as_deref() != Some(&*grant.owner) {
            return Ok(false);
        }
        tokio::time::sleep(self.1).await;
        self.0.link.call(redis::cmd("DEL").arg(&lock)).await
    }
}
