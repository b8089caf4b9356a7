//! A4 (go-redislock PR#26): the owner is the clock in milliseconds, and an equal owner is
//! taken for a re-entrant one.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;

use super::Bug;
use crate::locks::redis::{RedisLock, exclusive_ttl, grant, keys, ms};
use crate::locks::{BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, Want};
use crate::wire::redis::eval;

pub const BUG: Bug = Bug {
    id: "A4",
    about: "the owner is the clock in ms; equal owners are re-entrant",
    new,
};

const ACQUIRE: &str = "
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return false end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return redis.call('INCR', KEYS[2])";

struct Seeded(RedisLock);

fn new(cx: &LockContext) -> Result<BoxedLock, ConfError> {
    Ok(Box::new(Seeded(RedisLock::new(cx)?)))
}

#[async_trait]
impl LockClient for Seeded {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        let (ttl, names) = (exclusive_ttl(want)?, keys(&want.key));
        let once = || async {
            let owner = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or_else(|_| "0".into(), |t| t.as_millis().to_string());
            let sent = Instant::now();
            let cmd = eval(ACQUIRE, &[&names.lock, &names.fence], &[&owner, &ms(ttl)]);
            let fence: Option<u64> = self.0.link.call(&cmd).await?;
            Ok(fence.map(|f| grant(want, &owner, Some(f), ttl, sent)))
        };
        self.0.retry.until_granted(want.wait, once).await
    }

    async fn renew(&self, grant: &Grant, ttl: Duration) -> Result<Duration, CallError> {
        self.0.renew(grant, ttl).await
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        self.0.release(grant).await
    }
}
