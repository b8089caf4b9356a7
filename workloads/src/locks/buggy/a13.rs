//! A13 (redisson#4706): the lock counts its acquires, and an acquire whose reply was lost
//! is sent again: counted twice, it outlives its one release.

use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::Bug;
use crate::locks::redis::{RedisLock, exclusive_ttl, grant, keys, ms, random_owner};
use crate::locks::{BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, Want};
use crate::wire::redis::eval;

pub const BUG: Bug = Bug {
    id: "A13",
    about: "a retried acquire is counted twice",
    new,
};

const ACQUIRE: &str = "
if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return false end
redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('INCR', KEYS[2])";

const RENEW: &str = "
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])";

const RELEASE: &str = "
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) == 0 then redis.call('DEL', KEYS[1]) end
return 1";

struct Seeded(RedisLock);

fn new(cx: &LockContext) -> Result<BoxedLock, ConfError> {
    Ok(Box::new(Seeded(RedisLock::new(cx)?)))
}

#[async_trait]
impl LockClient for Seeded {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        let (ttl, owner, names) = (exclusive_ttl(want)?, random_owner(), keys(&want.key));
        let cmd = eval(ACQUIRE, &[&names.lock, &names.fence], &[&owner, &ms(ttl)]);
        let once = || async {
            let sent = Instant::now();
            let fence: Option<u64> = match self.0.link.call(&cmd).await {
                Err(CallError::Unknown(_)) => self.0.link.call(&cmd).await?,
                other => other?,
            };
            Ok(fence.map(|f| grant(want, &owner, Some(f), ttl, sent)))
        };
        self.0.retry.until_granted(want.wait, once).await
    }

    async fn renew(&self, grant: &Grant, ttl: Duration) -> Result<Duration, CallError> {
        match self.0.checked(RENEW, grant, &[&ms(ttl)]).await? {
            true => Ok(ttl),
            false => Err(CallError::not_held()),
        }
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        self.0.checked(RELEASE, grant, &[]).await
    }
}
