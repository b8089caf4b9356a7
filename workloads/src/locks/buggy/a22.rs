//! A22 (ShedLock#231): the end of the lease is written by the holder's clock and judged
//! by the next one's. A worker whose clock is ahead takes a live lock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;

use super::Bug;
use crate::locks::redis::{RedisLock, exclusive_ttl, grant, keys, random_owner};
use crate::locks::{BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, Want};
use crate::wire::redis::eval;

pub const BUG: Bug = Bug {
    id: "A22",
    about: "the lease's end is written by one clock and judged by another",
    new,
};

/// ARGV: owner, now and new end by the caller's clock, in ms.
const ACQUIRE: &str = "
local till = redis.call('HGET', KEYS[1], 'until')
if till and tonumber(till) > tonumber(ARGV[2]) then return false end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'until', ARGV[3])
return redis.call('INCR', KEYS[2])";

const RENEW: &str = "
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'until', ARGV[2])
return 1";

const RELEASE: &str = "
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])";

fn now_ms() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |t| t.as_millis())
}

fn end(ttl: Duration) -> String {
    (now_ms() + ttl.as_millis()).to_string()
}

struct Seeded(RedisLock);

fn new(cx: &LockContext) -> Result<BoxedLock, ConfError> {
    Ok(Box::new(Seeded(RedisLock::new(cx)?)))
}

#[async_trait]
impl LockClient for Seeded {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        let (ttl, owner, names) = (exclusive_ttl(want)?, random_owner(), keys(&want.key));
        let once = || async {
            let args = [&*owner, &now_ms().to_string(), &end(ttl)];
            let sent = Instant::now();
            let cmd = eval(ACQUIRE, &[&names.lock, &names.fence], &args);
            let fence: Option<u64> = self.0.link.call(&cmd).await?;
            Ok(fence.map(|f| grant(want, &owner, Some(f), ttl, sent)))
        };
        self.0.retry.until_granted(want.wait, once).await
    }

    async fn renew(&self, grant: &Grant, ttl: Duration) -> Result<Duration, CallError> {
        match self.0.checked(RENEW, grant, &[&end(ttl)]).await? {
            true => Ok(ttl),
            false => Err(CallError::not_held()),
        }
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        self.0.checked(RELEASE, grant, &[]).await
    }
}
