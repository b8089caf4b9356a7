//! A2 (laravel/framework#26213): release is a plain DEL. A holder that outlived its lease
//! frees the next one's lock.

use std::time::Duration;

use async_trait::async_trait;

use super::Bug;
use crate::locks::redis::{RedisLock, keys};
use crate::locks::{BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, Want};

pub const BUG: Bug = Bug {
    id: "A2",
    about: "release is a plain DEL",
    new,
};

struct Seeded(RedisLock);

fn new(cx: &LockContext) -> Result<BoxedLock, ConfError> {
    Ok(Box::new(Seeded(RedisLock::new(cx)?)))
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
        self.0
            .link
            .call(redis::cmd("DEL").arg(keys(&grant.key).lock))
            .await
    }
}
