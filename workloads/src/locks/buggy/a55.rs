//! A55 (amazon-dynamodb-lock-client#62): a random number as "fence": unique, and not
//! ordered.

use std::time::Duration;

use async_trait::async_trait;

use super::Bug;
use crate::locks::redis::RedisLock;
use crate::locks::{BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, Want};
use crate::protocol::Fence;

pub const BUG: Bug = Bug {
    id: "A55",
    about: "the fence is random",
    new,
};

struct Seeded(RedisLock);

fn new(cx: &LockContext) -> Result<BoxedLock, ConfError> {
    Ok(Box::new(Seeded(RedisLock::new(cx)?)))
}

#[async_trait]
impl LockClient for Seeded {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        let grant = self.0.acquire(want).await?;
        Ok(Grant {
            fence: Some(Fence(rand::random())),
            ..grant
        })
    }

    async fn renew(&self, grant: &Grant, ttl: Duration) -> Result<Duration, CallError> {
        self.0.renew(grant, ttl).await
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        self.0.release(grant).await
    }
}
