//! A31 (etcd#14758): the lease is a key of its own. The end of a hold deletes the lock first and
//! the lease later, and a keepalive in between is answered ok for a lock that is gone. The twin
//! takes both away at once and looks at both.

use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::Bug;
use crate::locks::redis::{RedisLock, exclusive_ttl, grant, keys, ms, random_owner};
use crate::locks::{BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, Want};
use crate::wire::redis::eval;

pub const BUG: Bug = Bug {
    id: "A31",
    about: "a renewal looks at the lease, which outlives its lock",
    new,
};

/// A lock whose owner has no lease any more is free.
const ACQUIRE: &str = "
local owner = redis.call('GET', KEYS[1])
if owner and redis.call('EXISTS', KEYS[1] .. ':lease:' .. owner) == 1 then return false end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[1] .. ':lease:' .. ARGV[1], '', 'PX', ARGV[2])
return redis.call('INCR', KEYS[2])";

const RENEW: &str = "
if ARGV[3] == 'both' and redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1] .. ':lease:' .. ARGV[1], ARGV[2])";

const FREE: &str = "
if ARGV[2] == 'both' then redis.call('DEL', KEYS[1] .. ':lease:' .. ARGV[1]) end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])";

const END_LEASE: &str = "return redis.call('DEL', KEYS[1] .. ':lease:' .. ARGV[1])";

struct Seeded {
    lock: RedisLock,
    gap: Duration,
    how: &'static str,
}

fn new(cx: &LockContext) -> Result<BoxedLock, ConfError> {
    Ok(Box::new(Seeded {
        lock: RedisLock::new(cx)?,
        gap: super::gap(cx)?,
        how: if super::twin(cx)? { "both" } else { "one" },
    }))
}

#[async_trait]
impl LockClient for Seeded {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        let (ttl, owner, names) = (exclusive_ttl(want)?, random_owner(), keys(&want.key));
        let cmd = eval(ACQUIRE, &[&names.lock, &names.fence], &[&owner, &ms(ttl)]);
        let once = || async {
            let sent = Instant::now();
            let fence: Option<u64> = self.lock.link.call(&cmd).await?;
            Ok(fence.map(|f| grant(want, &owner, Some(f), ttl, sent)))
        };
        self.lock.retry.until_granted(want.wait, once).await
    }

    async fn renew(&self, grant: &Grant, ttl: Duration) -> Result<Duration, CallError> {
        self.lock
            .renewed(RENEW, grant, &[&ms(ttl), self.how], ttl)
            .await
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        let held = self.lock.checked(FREE, grant, &[self.how]).await?;
        if self.how == "one" {
            tokio::time::sleep(self.gap).await;
            self.lock.checked(END_LEASE, grant, &[]).await?;
        }
        Ok(held)
    }
}
