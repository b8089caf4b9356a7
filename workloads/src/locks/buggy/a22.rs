//! A22 (ShedLock#231): the end of the lease is written by the holder's clock and judged
//! by the next one's. A worker whose clock is ahead takes a live lock. Param `skew_ms` (default 0):
//! how far this client's clock is ahead.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;

use super::Bug;
use crate::locks::redis::{RedisLock, exclusive_ttl, grant, keys, random_owner};
use crate::locks::{BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, Want, param};
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

struct Seeded {
    lock: RedisLock,
    skew: u64,
}

fn new(cx: &LockContext) -> Result<BoxedLock, ConfError> {
    Ok(Box::new(Seeded {
        lock: RedisLock::new(cx)?,
        skew: param(&cx.system.params, "skew_ms", 0)?,
    }))
}

impl Seeded {
    fn now_ms(&self) -> u128 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |t| t.as_millis()) + u128::from(self.skew)
    }

    fn end(&self, ttl: Duration) -> String {
        (self.now_ms() + ttl.as_millis()).to_string()
    }
}

#[async_trait]
impl LockClient for Seeded {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        let (ttl, owner, names) = (exclusive_ttl(want)?, random_owner(), keys(&want.key));
        let once = || async {
            let args = [&*owner, &self.now_ms().to_string(), &self.end(ttl)];
            let sent = Instant::now();
            let cmd = eval(ACQUIRE, &[&names.lock, &names.fence], &args);
            let fence: Option<u64> = self.lock.link.call(&cmd).await?;
            Ok(fence.map(|f| grant(want, &owner, Some(f), ttl, sent)))
        };
        self.lock.retry.until_granted(want.wait, once).await
    }

    async fn renew(&self, grant: &Grant, ttl: Duration) -> Result<Duration, CallError> {
        self.lock
            .renewed(RENEW, grant, &[&self.end(ttl)], ttl)
            .await
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        self.lock.checked(RELEASE, grant, &[]).await
    }
}
