//! Redlock on independent Redis masters, by the published algorithm
//! (redis.io/docs/latest/develop/use/patterns/distributed-locks): SET on all at
//! once with a short timeout each, a majority, the time that it took and an
//! allowance for clock drift taken off the validity, release on all.
//!
//! It has no fence. Params: `counter` (default false) makes one from a counter
//! on each master, the highest of those that granted: two majorities need not
//! agree on its order. `node_timeout_ms` (50), `drift_percent` (1.0),
//! `drift_ms` (2), `retry_ms`, `bug`.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::future::join_all;

use super::redis::{ACQUIRE, RELEASE, RENEW, exclusive_ttl, grant, keys, ms, random_owner};
use super::waiting::Retry;
use super::{
    BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, LockKind, Want, buggy, param,
};
use crate::wire::redis::{RedisLink, eval};

pub const KIND: LockKind = LockKind {
    name: "redlock",
    about: "Redlock on independent Redis masters, without a fence or with a counter as one",
    new,
};

struct Redlock {
    nodes: Vec<RedisLink>,
    retry: Retry,
    counter: bool,
    drift_factor: f64,
    drift: Duration,
    /// `bug = "A19"`: the time that the acquire took is not taken off.
    ignores_elapsed: bool,
}

fn new(cx: LockContext) -> Result<BoxedLock, ConfError> {
    let p = &cx.system.params;
    let per_node = Duration::from_millis(param(p, "node_timeout_ms", 50)?).min(cx.timeout);
    let bug = buggy::inline("redlock", &cx)?;
    let nodes: Vec<RedisLink> = cx
        .system
        .endpoints
        .iter()
        .map(|e| RedisLink::new(e.addr.clone(), per_node))
        .collect();
    if nodes.is_empty() {
        return Err(ConfError("system \"redlock\" needs endpoints".into()));
    }
    Ok(Box::new(Redlock {
        nodes,
        retry: Retry::from(&cx)?,
        counter: param(p, "counter", false)?,
        drift_factor: param(p, "drift_percent", 1.0)? / 100.0,
        drift: Duration::from_millis(param(p, "drift_ms", 2)?),
        ignores_elapsed: bug.is_some(),
    }))
}

/// What the masters said.
#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    yes: usize,
    no: usize,
    unknown: usize,
}

impl Count {
    fn of(answers: &[Result<bool, CallError>]) -> Count {
        let mut count = Count::default();
        for answer in answers {
            match answer {
                Ok(true) => count.yes += 1,
                Ok(false) | Err(CallError::Definite(_)) => count.no += 1,
                Err(CallError::Unknown(_)) => count.unknown += 1,
            }
        }
        count
    }

    /// Whether a majority said yes; unknown where the silent ones decide it.
    fn majority(&self) -> Result<bool, CallError> {
        let quorum = (self.yes + self.no + self.unknown) / 2 + 1;
        if self.yes >= quorum {
            Ok(true)
        } else if self.yes + self.unknown < quorum {
            Ok(false)
        } else {
            Err(CallError::unknown(format!("{self:?}")))
        }
    }
}

impl Redlock {
    /// What is left of `ttl` after `elapsed`, less the allowance for drift.
    fn validity(&self, ttl: Duration, elapsed: Duration) -> Duration {
        let elapsed = if self.ignores_elapsed {
            Duration::ZERO
        } else {
            elapsed
        };
        let drift = ttl.mul_f64(self.drift_factor) + self.drift;
        ttl.saturating_sub(elapsed + drift)
    }

    async fn on_all(&self, script: &str, grant: &Grant, extra: &[&str]) -> Count {
        let lock = keys(&grant.key).lock;
        let mut args = vec![&*grant.owner];
        args.extend(extra);
        let cmd = eval(script, &[&lock], &args);
        Count::of(&join_all(self.nodes.iter().map(|n| n.call::<bool>(&cmd))).await)
    }

    async fn try_once(&self, want: &Want, ttl: Duration) -> Result<Option<Grant>, CallError> {
        let (owner, names) = (random_owner(), keys(&want.key));
        let cmd = eval(ACQUIRE, &[&names.lock, &names.fence], &[&owner, &ms(ttl)]);
        let sent = Instant::now();
        let answers = join_all(self.nodes.iter().map(|n| n.call::<Option<u64>>(&cmd))).await;
        let highest = answers.iter().flatten().flatten().max().copied();
        let granted: Vec<Result<bool, CallError>> = answers
            .into_iter()
            .map(|a| a.map(|fence| fence.is_some()))
            .collect();
        let count = Count::of(&granted);
        let fence = highest.filter(|_| self.counter);
        let grant = grant(want, &owner, fence, ttl, sent);
        let valid = !self.validity(ttl, sent.elapsed()).is_zero();
        if count.majority() == Ok(true) && valid {
            return Ok(Some(grant));
        }
        self.on_all(RELEASE, &grant, &[]).await;
        // Whatever the silent ones still do, a minority of them grants nothing.
        if count.unknown > self.nodes.len() / 2 {
            return Err(CallError::unknown(
                "a majority of the masters did not answer",
            ));
        }
        Ok(None)
    }
}

#[async_trait]
impl LockClient for Redlock {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        let ttl = exclusive_ttl(want)?;
        let waiting = self.retry.within(want.wait);
        loop {
            if let Some(grant) = self.try_once(want, ttl).await? {
                return Ok(grant);
            }
            if !waiting.again().await {
                return Err(CallError::busy());
            }
        }
    }

    async fn renew(&self, grant: &Grant, ttl: Duration) -> Result<Duration, CallError> {
        let sent = Instant::now();
        match self.on_all(RENEW, grant, &[&ms(ttl)]).await.majority()? {
            true if self.validity(ttl, sent.elapsed()).is_zero() => Err(CallError::unknown(
                "the renewal took longer than it prolongs",
            )),
            true => Ok(ttl),
            false => Err(CallError::not_held()),
        }
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        self.on_all(RELEASE, grant, &[]).await.majority()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::{lock_context, redis, want};

    fn count(yes: usize, no: usize, unknown: usize) -> Result<bool, CallError> {
        Count { yes, no, unknown }.majority()
    }

    #[test]
    fn silent_masters_make_an_answer_unknown_only_where_they_decide() {
        assert_eq!(count(3, 2, 0), Ok(true));
        assert_eq!(count(2, 3, 0), Ok(false));
        assert_eq!(count(3, 0, 2), Ok(true));
        assert_eq!(count(0, 3, 2), Ok(false));
        assert!(matches!(count(2, 2, 1), Err(CallError::Unknown(_))));
    }

    #[tokio::test]
    async fn a_majority_locks_even_with_a_minority_down() {
        let Some(servers) = (0..3).map(|_| redis()).collect::<Option<Vec<_>>>() else {
            return;
        };
        let addrs: Vec<&str> = servers.iter().map(|s| s.addr.as_str()).collect();
        let make = |client| {
            let json = serde_json::json!({"counter": true, "node_timeout_ms": 500});
            new(lock_context("redlock", &addrs, json, client)).unwrap()
        };
        let (a, b) = (make(0), make(1));
        let first = a.acquire(&want("L0", 5_000, 0)).await.unwrap();
        assert_eq!(
            b.acquire(&want("L0", 5_000, 0)).await.unwrap_err(),
            CallError::busy()
        );
        a.renew(&first, Duration::from_secs(5)).await.unwrap();
        assert!(a.release(&first).await.unwrap());
        assert!(!a.release(&first).await.unwrap());
        let mut servers = servers;
        servers.pop();
        let second = b.acquire(&want("L0", 5_000, 0)).await.unwrap();
        assert!(second.fence > first.fence);
        servers.pop();
        assert!(
            b.acquire(&want("L1", 5_000, 0)).await.is_err(),
            "a minority grants nothing"
        );
        assert!(
            !b.release(&second).await.unwrap(),
            "one of three is no majority"
        );
    }
}
