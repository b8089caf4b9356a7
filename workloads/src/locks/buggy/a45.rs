//! A45 (hazelcast PR#9842): the backup of a lock has no expiry. When it is promoted after the lock's
//! own entry is gone, it is never freed. The twin's backup ends with the lease.

use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::Bug;
use crate::locks::redis::{RedisLock, exclusive_ttl, grant, keys, ms, random_owner};
use crate::locks::{BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, Want};
use crate::wire::redis::eval;

pub const BUG: Bug = Bug {
    id: "A45",
    about: "the backup of a lock has no expiry, and takes its place",
    new,
};

const ACQUIRE: &str = "
local backup = KEYS[1] .. ':backup'
if redis.call('GET', KEYS[1]) then return false end
local kept = redis.call('GET', backup)
if kept then
  redis.call('RENAME', backup, KEYS[1])
  return false
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('SET', backup, ARGV[1])
if ARGV[3] == 'ends' then redis.call('PEXPIRE', backup, ARGV[2]) end
return redis.call('INCR', KEYS[2])";

const RENEW: &str = "
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[3] == 'ends' then redis.call('PEXPIRE', KEYS[1] .. ':backup', ARGV[2]) end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])";

const RELEASE: &str = "
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1] .. ':backup')
return redis.call('DEL', KEYS[1])";

struct Seeded(RedisLock, &'static str);

fn new(cx: &LockContext) -> Result<BoxedLock, ConfError> {
    let backup = if super::twin(cx)? { "ends" } else { "stays" };
    Ok(Box::new(Seeded(RedisLock::new(cx)?, backup)))
}

#[async_trait]
impl LockClient for Seeded {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        let (ttl, owner, names) = (exclusive_ttl(want)?, random_owner(), keys(&want.key));
        let args = [&*owner, &ms(ttl), self.1];
        let cmd = eval(ACQUIRE, &[&names.lock, &names.fence], &args);
        let once = || async {
            let sent = Instant::now();
            let fence: Option<u64> = self.0.link.call(&cmd).await?;
            Ok(fence.map(|f| grant(want, &owner, Some(f), ttl, sent)))
        };
        self.0.retry.until_granted(want.wait, once).await
    }

    async fn renew(&self, grant: &Grant, ttl: Duration) -> Result<Duration, CallError> {
        match self.0.checked(RENEW, grant, &[&ms(ttl), self.1]).await? {
            true => Ok(ttl),
            false => Err(CallError::not_held()),
        }
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        self.0.checked(RELEASE, grant, &[]).await
    }
}
