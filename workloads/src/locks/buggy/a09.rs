//! A9 (redisson#7272, amazon-dynamodb-lock-client PR#116): the renewal arms itself again
//! and knows no release: a released lock comes back and is never freed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::Bug;
use crate::locks::redis::{RedisLock, exclusive_ttl, keys, ms};
use crate::locks::{BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, Want};

pub const BUG: Bug = Bug {
    id: "A9",
    about: "renewal goes on after the release",
    new,
};

struct Seeded(Arc<RedisLock>);

fn new(cx: &LockContext) -> Result<BoxedLock, ConfError> {
    Ok(Box::new(Seeded(Arc::new(RedisLock::new(cx)?))))
}

#[async_trait]
impl LockClient for Seeded {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        let grant = self.0.acquire(want).await?;
        let (lock, owner, ttl) = (
            keys(&grant.key).lock,
            grant.owner.clone(),
            exclusive_ttl(want)?,
        );
        let link = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(ttl / 3).await;
                let Some(client) = link.upgrade() else { return };
                let mut set = redis::cmd("SET");
                set.arg(&lock).arg(&*owner).arg("PX").arg(ms(ttl));
                // The next round tries again.
                let _ = client.link.call::<()>(&set).await;
            }
        });
        Ok(grant)
    }

    async fn renew(&self, grant: &Grant, ttl: Duration) -> Result<Duration, CallError> {
        self.0.renew(grant, ttl).await
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        self.0.release(grant).await
    }
}
