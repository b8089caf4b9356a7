//! Lock on a Redis primary with replicas, found through Sentinel.
//!
//! Endpoints whose name begins with `sentinel` are the sentinels. Params:
//! `master` (default `mymaster`), `wait_replicas` (default 0: replication is
//! asynchronous and an acknowledged grant can be lost) makes a grant and a
//! renewal wait, by WAIT, until so many replicas have it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use redis::Value;

use super::redis::{ACQUIRE, RELEASE, RENEW, exclusive_ttl, grant, keys, ms, random_owner};
use super::waiting::Retry;
use super::{
    BoxedLock, CallError, ConfError, Grant, LockClient, LockContext, LockKind, Want, param,
};
use crate::wire::redis::{RedisLink, eval};

pub const KIND: LockKind = LockKind {
    name: "redis-failover",
    about: "Redis primary with replicas, followed through Sentinel; WAIT as an option",
    new,
};

struct Failover {
    sentinels: Vec<RedisLink>,
    master: String,
    primary: Mutex<Option<Arc<RedisLink>>>,
    replicas: u32,
    timeout: Duration,
    retry: Retry,
}

fn new(cx: LockContext) -> Result<BoxedLock, ConfError> {
    let sentinels: Vec<RedisLink> = cx
        .system
        .endpoints
        .iter()
        .filter(|e| e.name.starts_with("sentinel"))
        .map(|e| RedisLink::new(e.addr.clone(), cx.timeout))
        .collect();
    if sentinels.is_empty() {
        return Err(ConfError(
            "system \"redis-failover\" needs endpoints named sentinel…".into(),
        ));
    }
    Ok(Box::new(Failover {
        sentinels,
        master: param(&cx.system.params, "master", "mymaster".to_owned())?,
        primary: Mutex::new(None),
        replicas: param(&cx.system.params, "wait_replicas", 0)?,
        timeout: cx.timeout,
        retry: Retry::from(&cx)?,
    }))
}

impl Failover {
    fn known(&self) -> Option<Arc<RedisLink>> {
        self.primary
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, link: Option<Arc<RedisLink>>) {
        *self.primary.lock().unwrap_or_else(PoisonError::into_inner) = link;
    }

    /// The primary as known, or as the first sentinel that answers tells.
    ///
    /// # Errors
    /// Definite: asking changes nothing.
    async fn primary(&self) -> Result<Arc<RedisLink>, CallError> {
        if let Some(link) = self.known() {
            return Ok(link);
        }
        let mut why = String::new();
        for sentinel in &self.sentinels {
            let mut ask = redis::cmd("SENTINEL");
            ask.arg("get-master-addr-by-name").arg(&self.master);
            match sentinel.call::<Option<(String, String)>>(&ask).await {
                Ok(Some((host, port))) => {
                    let link = Arc::new(RedisLink::new(format!("{host}:{port}"), self.timeout));
                    match link.call::<Value>(&redis::cmd("ROLE")).await {
                        Ok(Value::Array(role)) if is_primary(&role) => {
                            self.set(Some(link.clone()));
                            return Ok(link);
                        }
                        Ok(_) => why = format!("{host}:{port} is no primary"),
                        Err(e) => why = e.to_string(),
                    }
                }
                Ok(None) => why = format!("no master \"{}\" known", self.master),
                Err(e) => why = e.to_string(),
            }
        }
        Err(CallError::definite(format!("no primary: {why}")))
    }

    /// One call to the primary; after any error the sentinels are asked anew.
    async fn call<T: redis::FromRedisValue>(&self, cmd: &redis::Cmd) -> Result<T, CallError> {
        let link = self.primary().await?;
        let answer = link.call(cmd).await;
        if answer.is_err() {
            self.set(None);
        }
        answer
    }

    /// A call and, if asked for, WAIT on the same connection: the answer of the
    /// call and whether enough replicas have it.
    async fn replicated(&self, cmd: &redis::Cmd) -> Result<(Value, bool), CallError> {
        let link = self.primary().await?;
        let both = async {
            let mut conn = link.take().await?;
            let answer = conn
                .exchange(cmd.get_packed_command(), self.timeout)
                .await?;
            if self.replicas == 0 || matches!(answer, Value::Nil | Value::Int(0)) {
                link.put(conn);
                return Ok((answer, true));
            }
            let mut wait = redis::cmd("WAIT");
            wait.arg(self.replicas)
                .arg(self.timeout.as_millis() as u64 / 2);
            // The call took effect: whatever goes wrong from here on is unknown.
            let unknown = |e: CallError| CallError::unknown(e.to_string());
            let acks = conn
                .exchange(wait.get_packed_command(), self.timeout)
                .await
                .map_err(unknown)?;
            link.put(conn);
            Ok((
                answer,
                matches!(acks, Value::Int(n) if n >= i64::from(self.replicas)),
            ))
        };
        let answer = both.await;
        if answer.is_err() {
            self.set(None);
        }
        answer
    }

    async fn try_once(&self, want: &Want, ttl: Duration) -> Result<Option<Grant>, CallError> {
        let (owner, names) = (random_owner(), keys(&want.key));
        let cmd = eval(ACQUIRE, &[&names.lock, &names.fence], &[&owner, &ms(ttl)]);
        let sent = Instant::now();
        let (answer, enough) = self.replicated(&cmd).await?;
        let fence: Option<u64> =
            redis::from_redis_value(answer).map_err(|e| CallError::unknown(e.to_string()))?;
        let Some(fence) = fence else { return Ok(None) };
        let grant = grant(want, &owner, Some(fence), ttl, sent);
        if enough {
            return Ok(Some(grant));
        }
        match self.release(&grant).await {
            Ok(_) => Err(CallError::definite("not replicated")),
            Err(e) => Err(CallError::unknown(format!(
                "not replicated, and not released: {e}"
            ))),
        }
    }
}

/// Whether an answer to ROLE is a primary's.
fn is_primary(role: &[Value]) -> bool {
    matches!(role.first(), Some(Value::BulkString(name)) if name == b"master")
}

#[async_trait]
impl LockClient for Failover {
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
        let cmd = eval(RENEW, &[&keys(&grant.key).lock], &[&grant.owner, &ms(ttl)]);
        match self.replicated(&cmd).await? {
            (Value::Int(1), true) => Ok(ttl),
            (Value::Int(1), false) => Err(CallError::unknown("renewed, but not replicated")),
            _ => Err(CallError::not_held()),
        }
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        self.call(&eval(RELEASE, &[&keys(&grant.key).lock], &[&grant.owner]))
            .await
    }
}

#[cfg(test)]
#[path = "redis_failover_tests.rs"]
mod tests;
