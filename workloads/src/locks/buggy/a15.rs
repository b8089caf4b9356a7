//! A15 (redisson#1763, #5761): a waiter tries, subscribes to the lock's channel and waits for the
//! message of a release. One that is published between the try and the subscription is
//! never heard. The twin tries again once it listens.

use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::Bug;
use crate::locks::redis::{RedisLock, keys, random_owner};
use crate::locks::{BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, Want};

pub const BUG: Bug = Bug {
    id: "A15",
    about: "no look at the lock after subscribing to its release",
    new,
};

const RELEASE: &str = "
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', 'fencepost:freed:' .. KEYS[1], '')
return 1";

struct Seeded {
    lock: RedisLock,
    gap: Duration,
    twin: bool,
}

fn new(cx: &LockContext) -> Result<BoxedLock, ConfError> {
    Ok(Box::new(Seeded {
        lock: RedisLock::new(cx)?,
        gap: super::gap(cx)?,
        twin: super::twin(cx)?,
    }))
}

#[async_trait]
impl LockClient for Seeded {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        let (owner, until) = (random_owner(), Instant::now() + want.wait);
        if let Some(grant) = self.lock.try_once(want, &owner).await? {
            return Ok(grant);
        }
        tokio::time::sleep(self.gap).await;
        // A connection of its own: it carries nothing else from here on.
        let mut channel = self.lock.link.take().await?;
        let mut subscribe = redis::cmd("SUBSCRIBE");
        subscribe.arg(format!("fencepost:freed:{}", keys(&want.key).lock));
        let bytes = subscribe.get_packed_command();
        channel.exchange(bytes, self.lock.link.timeout()).await?;
        let mut looks = self.twin;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if !looks {
                // The message, or the end of the wait: there is one more try either way.
                let _ = channel.hear(left).await;
            }
            looks = false;
            if let Some(grant) = self.lock.try_once(want, &owner).await? {
                return Ok(grant);
            }
            if left.is_zero() {
                return Err(CallError::busy());
            }
        }
    }

    async fn renew(&self, grant: &Grant, ttl: Duration) -> Result<Duration, CallError> {
        self.lock.renew(grant, ttl).await
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        self.lock.checked(RELEASE, grant, &[]).await
    }
}
