//! A1 (redis-py#554, ShedLock#65): SETNX, then a separate PEXPIRE. A client that dies
//! between the two leaves a lock that is never freed.

use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::Bug;
use crate::locks::redis::{RedisLock, exclusive_ttl, grant, keys, ms, random_owner};
use crate::locks::{BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, Want};

pub const BUG: Bug = Bug {
    id: "A1",
    about: "SETNX, then a separate PEXPIRE",
    new,
};

struct Seeded(RedisLock, Duration);

fn new(cx: &LockContext) -> Result<BoxedLock, ConfError> {
    Ok(Box::new(Seeded(RedisLock::new(cx)?, super::gap(cx)?)))
}

#[async_trait]
impl LockClient for Seeded {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        let (ttl, owner, names) = (exclusive_ttl(want)?, random_owner(), keys(&want.key));
        let once = || async {
            let sent = Instant::now();
            let set = redis::cmd("SETNX").arg(&names.lock).arg(&owner).to_owned();
            if !self.0.link.call(&set).await? {
                return Ok(None);
            }
            tokio::time::sleep(self.1).await;
            let mut expire = redis::cmd("PEXPIRE");
            expire.arg(&names.lock).arg(ms(ttl));
            self.0.link.call::<()>(&expire).await?;
            let fence = self.0.next_fence(&names).await?;
            Ok(Some(grant(want, &owner, Some(fence), ttl, sent)))
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
