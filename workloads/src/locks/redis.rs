//! Lock on one Redis server, done right: `SET NX PX` with a random owner and
//! the fence from an `INCR` in the same script as the grant; release and
//! renewal check the owner in a script.
//!
//! Params: `retry_ms`, `bug` and `twin` (see the `buggy` folder).

use std::time::{Duration, Instant};

use async_trait::async_trait;
use rand::RngExt;

use super::waiting::Retry;
use super::{
    BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, LockKind, Want, buggy,
};
use crate::protocol::{Fence, Mode};
use crate::wire::redis::{RedisLink, eval};

pub const KIND: LockKind = LockKind {
    name: "redis",
    about: "one Redis server: SET NX PX, owner-checked scripts, fence from INCR",
    new,
};

pub(super) const ACQUIRE: &str = "
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return redis.call('INCR', KEYS[2])
end
return false";

pub(super) const RELEASE: &str = "
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0";

pub(super) const RENEW: &str = "
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0";

fn new(cx: LockContext) -> Result<BoxedLock, ConfError> {
    if let Some(bug) = buggy::of_client(&cx)? {
        return buggy::make("redis", buggy::REDIS, &bug, &cx);
    }
    Ok(Box::new(RedisLock::new(&cx)?))
}

/// The names under which a lock lives in Redis.
pub(super) struct Keys {
    pub lock: String,
    pub fence: String,
}

pub(super) fn keys(key: &str) -> Keys {
    Keys {
        lock: format!("fencepost:lock:{key}"),
        fence: format!("fencepost:fence:{key}"),
    }
}

/// 20 random bytes, in hex.
pub fn random_owner() -> String {
    let bytes: [u8; 20] = rand::rng().random();
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The lease that a lock with leases was asked for; exclusive mode only.
///
/// # Errors
/// Definite where it is missing, zero, or another mode is asked for.
pub fn exclusive_ttl(want: &Want) -> Result<Duration, CallError> {
    if want.mode != Mode::Exclusive {
        return Err(CallError::definite("this lock has the exclusive mode only"));
    }
    want.ttl
        .filter(|t| !t.is_zero())
        .ok_or_else(|| CallError::definite("this lock needs a ttl_ms above 0"))
}

pub(super) fn ms(d: Duration) -> String {
    d.as_millis().to_string()
}

/// A client of one server. The buggy clients are built from its parts.
pub(super) struct RedisLock {
    pub link: RedisLink,
    pub retry: Retry,
}

impl RedisLock {
    pub fn new(cx: &LockContext) -> Result<Self, ConfError> {
        let Some(first) = cx.system.endpoints.first() else {
            return Err(ConfError(format!(
                "system \"{}\" needs an endpoint",
                cx.system.name
            )));
        };
        Ok(RedisLock {
            link: RedisLink::new(first.addr.clone(), cx.timeout),
            retry: Retry::from(cx)?,
        })
    }

    /// Tries once; `None`: busy.
    pub async fn try_once(&self, want: &Want, owner: &str) -> Result<Option<Grant>, CallError> {
        let ttl = exclusive_ttl(want)?;
        let keys = keys(&want.key);
        let cmd = eval(ACQUIRE, &[&keys.lock, &keys.fence], &[owner, &ms(ttl)]);
        let sent = Instant::now();
        let fence: Option<u64> = self.link.call(&cmd).await?;
        Ok(fence.map(|f| grant(want, owner, Some(f), ttl, sent)))
    }

    /// The next fence, in a call of its own.
    pub async fn next_fence(&self, names: &Keys) -> Result<u64, CallError> {
        self.link.call(redis::cmd("INCR").arg(&names.fence)).await
    }

    /// Runs one of the owner-checked scripts; false: not the owner.
    pub async fn checked(
        &self,
        script: &str,
        grant: &Grant,
        extra: &[&str],
    ) -> Result<bool, CallError> {
        let mut args = vec![&*grant.owner];
        args.extend(extra);
        let cmd = eval(script, &[&keys(&grant.key).lock], &args);
        self.link.call(&cmd).await
    }

    /// Runs an owner-checked script as the renewal for `ttl`.
    pub async fn renewed(
        &self,
        script: &str,
        grant: &Grant,
        extra: &[&str],
        ttl: Duration,
    ) -> Result<Duration, CallError> {
        match self.checked(script, grant, extra).await? {
            true => Ok(ttl),
            false => Err(CallError::not_held()),
        }
    }

    /// The plain renewal.
    pub async fn renew_checked(&self, grant: &Grant, ttl: Duration) -> Result<Duration, CallError> {
        self.renewed(RENEW, grant, &[&ms(ttl)], ttl).await
    }
}

pub(super) fn grant(
    want: &Want,
    owner: &str,
    fence: Option<u64>,
    ttl: Duration,
    sent: Instant,
) -> Grant {
    Grant {
        key: want.key.clone(),
        mode: want.mode,
        owner: owner.into(),
        fence: fence.map(Fence),
        ttl: Some(ttl),
        sent,
    }
}

#[async_trait]
impl LockClient for RedisLock {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        let owner = random_owner();
        let once = || self.try_once(want, &owner);
        self.retry.until_granted(want.wait, once).await
    }

    async fn renew(&self, grant: &Grant, ttl: Duration) -> Result<Duration, CallError> {
        self.renew_checked(grant, ttl).await
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        self.checked(RELEASE, grant, &[]).await
    }
}

#[cfg(test)]
#[path = "redis_tests.rs"]
mod tests;
