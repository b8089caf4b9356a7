//! A8 (redlock-rb#36): a renewal succeeds where the key has expired, and resurrects the
//! grant after another held and released the lock.

use std::time::Duration;

use async_trait::async_trait;

use super::Bug;
use crate::locks::redis::{RedisLock, ms};
use crate::locks::{BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, Want};

pub const BUG: Bug = Bug {
    id: "A8",
    about: "a renewal succeeds on an expired key",
    new,
};

const RENEW: &str = "
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1";

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
        match self.0.checked(RENEW, grant, &[&ms(ttl)]).await? {
            true => Ok(ttl),
            false => Err(CallError::not_held()),
        }
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        self.0.release(grant).await
    }
}
