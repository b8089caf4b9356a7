//! A6 (laravel/framework#43627): GET, and where it is free, SET. Two acquirers may both
//! find it free.

use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::Bug;
use crate::locks::redis::{RedisLock, exclusive_ttl, grant, keys, ms, random_owner};
use crate::locks::{BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, Want};

pub const BUG: Bug = Bug {
    id: "A6",
    about: "GET, then SET where it was free",
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
            let get = redis::cmd("GET").arg(&names.lock).to_owned();
            if self.0.link.call::<Option<String>>(&get).await?.is_some() {
                return Ok(None);
            }
            tokio::time::sleep(self.1).await;
            let sent = Instant::now();
            let mut set = redis::cmd("SET");
            set.arg(&names.lock).arg(&owner).arg("PX").arg(ms(ttl));
            self.0.link.call::<()>(&set).await?;
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
