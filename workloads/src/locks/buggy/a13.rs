//! A13 (redisson#4706): the lock counts its acquires, and an acquire whose reply was lost
//! is sent again: counted twice, it outlives its one release, and is renewed for as long as it counts.

use std::sync::Arc;
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

/// Answers the count before it.
const RELEASE: &str = "
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
local left = redis.call('HINCRBY', KEYS[1], ARGV[1], -1)
if left == 0 then redis.call('DEL', KEYS[1]) end
return left + 1";

struct Seeded(Arc<RedisLock>);

fn new(cx: &LockContext) -> Result<BoxedLock, ConfError> {
    Ok(Box::new(Seeded(Arc::new(RedisLock::new(cx)?))))
}

/// As long as the lock counts this owner and the client lives.
fn renew_on(lock: &Arc<RedisLock>, grant: &Grant) {
    let (lock, grant) = (Arc::downgrade(lock), grant.clone());
    let Some(ttl) = grant.ttl else { return };
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(ttl / 3).await;
            let Some(lock) = lock.upgrade() else { return };
            let renewed = lock.renewed(RENEW, &grant, &[&ms(ttl)], ttl).await;
            if renewed == Err(CallError::not_held()) {
                return;
            }
        }
    });
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
        self.0.renewed(RENEW, grant, &[&ms(ttl)], ttl).await
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        let release = eval(RELEASE, &[&keys(&grant.key).lock], &[&grant.owner]);
        let counted: u64 = self.0.link.call(&release).await?;
        if counted > 1 {
            renew_on(&self.0, grant);
        }
        Ok(counted > 0)
    }
}
