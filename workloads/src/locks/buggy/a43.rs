//! A43 (kazoo#730): a queue by tickets whose numbers have 32 bits and go negative, and whose names
//! are compared as text: after 2³¹−1 the newest waiter is the first. The twin's numbers have 64
//! bits and always 20 digits.

use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::Bug;
use super::leased_set::{LEAVE, NOW, RENEW};
use crate::locks::redis::{RedisLock, exclusive_ttl, keys, ms};
use crate::locks::{BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, Want};
use crate::protocol::Fence;
use crate::wire::redis::eval;

pub const BUG: Bug = Bug {
    id: "A43",
    about: "tickets of 32 bits that wrap, compared as text",
    new,
};

const TURN: &str = "
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
local all = redis.call('ZRANGE', KEYS[1], 0, -1)
table.sort(all)
return all[1] == ARGV[1] and redis.call('INCR', KEYS[2])";

/// Where a lock's tickets are counted.
pub fn tickets(key: &str) -> String {
    format!("fencepost:ticket:{key}")
}

struct Seeded(RedisLock, bool);

fn new(cx: &LockContext) -> Result<BoxedLock, ConfError> {
    Ok(Box::new(Seeded(RedisLock::new(cx)?, super::twin(cx)?)))
}

impl Seeded {
    /// The name of a new ticket, which is the owner too.
    async fn ticket(&self, key: &str) -> Result<String, CallError> {
        let number: i64 = self
            .0
            .link
            .call(redis::cmd("INCR").arg(tickets(key)))
            .await?;
        Ok(match self.1 {
            true => format!("{key}#{number:020}"),
            false => format!("{key}#{:010}", number as i32),
        })
    }
}

#[async_trait]
impl LockClient for Seeded {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        let (ttl, names) = (exclusive_ttl(want)?, keys(&want.key));
        let owner = self.ticket(&want.key).await?;
        let grant = |fence, sent| Grant {
            key: want.key.clone(),
            mode: want.mode,
            owner: owner.as_str().into(),
            fence: Some(Fence(fence)),
            ttl: Some(ttl),
            sent,
        };
        let turn = eval(
            &format!("{NOW}{TURN}"),
            &[&names.lock, &names.fence],
            &[&owner, &ms(ttl)],
        );
        let once = || async {
            let sent = Instant::now();
            let fence: Option<u64> = self.0.link.call(&turn).await?;
            Ok(fence.map(|f| grant(f, sent)))
        };
        let got = self.0.retry.until_granted(want.wait, once).await;
        if got.is_err() {
            self.0
                .checked(LEAVE, &grant(0, Instant::now()), &[])
                .await?;
        }
        got
    }

    async fn renew(&self, grant: &Grant, ttl: Duration) -> Result<Duration, CallError> {
        let script = format!("{NOW}{RENEW}");
        self.0.renewed(&script, grant, &[&ms(ttl)], ttl).await
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        self.0.checked(LEAVE, grant, &[]).await
    }
}
