//! A41 (kazoo#213): a semaphore that counts its holders and adds itself in two steps, with no lock
//! around them. The twin does both in one script.

use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::Bug;
use super::leased_set::{LEAVE, NOW, RENEW};
use crate::locks::redis::{RedisLock, grant, keys, ms, random_owner};
use crate::locks::{BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, Want};
use crate::protocol::Mode;
use crate::wire::redis::eval;

pub const BUG: Bug = Bug {
    id: "A41",
    about: "a semaphore counts, then adds itself",
    new,
};

const COUNT: &str = "
return redis.call('ZCARD', KEYS[1])";

const ADD: &str = "
if ARGV[3] ~= '' and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then return false end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
return redis.call('INCR', KEYS[2])";

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

impl Seeded {
    async fn has_room(&self, lock: &str, permits: u64) -> Result<bool, CallError> {
        let count = eval(&format!("{NOW}{COUNT}"), &[lock], &[]);
        let held: u64 = self.lock.link.call(&count).await?;
        tokio::time::sleep(self.gap).await;
        Ok(held < permits)
    }
}

#[async_trait]
impl LockClient for Seeded {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        let ttl = want
            .ttl
            .filter(|t| !t.is_zero() && want.mode == Mode::Semaphore)
            .ok_or_else(|| CallError::definite("this client has semaphores with leases only"))?;
        let (owner, names) = (random_owner(), keys(&want.key));
        let permits = u64::from(want.permits.unwrap_or(1));
        let most = if self.twin {
            permits.to_string()
        } else {
            String::new()
        };
        let add = eval(
            &format!("{NOW}{ADD}"),
            &[&names.lock, &names.fence],
            &[&owner, &ms(ttl), &most],
        );
        let once = || async {
            if !self.twin && !self.has_room(&names.lock, permits).await? {
                return Ok(None);
            }
            let sent = Instant::now();
            let fence: Option<u64> = self.lock.link.call(&add).await?;
            Ok(fence.map(|f| grant(want, &owner, Some(f), ttl, sent)))
        };
        self.lock.retry.until_granted(want.wait, once).await
    }

    async fn renew(&self, grant: &Grant, ttl: Duration) -> Result<Duration, CallError> {
        let script = format!("{NOW}{RENEW}");
        self.lock.renewed(&script, grant, &[&ms(ttl)], ttl).await
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        self.lock.checked(LEAVE, grant, &[]).await
    }
}
