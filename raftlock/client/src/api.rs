//! Single calls to the HTTP API. No retries but one: a node that answers "not the leader" did nothing, so the same
//! request goes to the leader that it names.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::error::{CallError, Outcome, Retry, WireError};
use crate::routes::{BucketMap, Routes, group_of_session};
use crate::secure::Security;
use crate::types::{AcquireOptions, Alive, Grant, LockInfo, Mode, SessionInfo, Undone};

pub(crate) const REDIRECTS: usize = 3;

#[derive(Deserialize)]
struct Withdrawn {
    was: Undone,
}

#[derive(Deserialize)]
struct ErrorBody {
    error: WireError,
}

/// A connection pool to the nodes of one cluster. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Api {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    http: reqwest::Client,
    routes: Mutex<Routes>,
    security: Security,
    timeout: Duration,
}

impl Api {
    /// `endpoints` are `host:port` or `http://host:port`; `timeout` bounds each call (beyond its `wait_ms`).
    pub fn new(endpoints: &[String], timeout: Duration) -> Result<Self, CallError> {
        Self::secured(endpoints, timeout, Security::default())
    }

    /// The same with a bearer token, TLS, or both.
    pub fn secured(
        endpoints: &[String],
        timeout: Duration,
        security: Security,
    ) -> Result<Self, CallError> {
        if endpoints.is_empty() {
            return Err(CallError::local("config", "no endpoints given", Retry::No));
        }
        let nodes = endpoints
            .iter()
            .map(|each| security.base_url(each))
            .collect::<Result<_, _>>()?;
        let inner = Inner {
            http: security.http(None)?,
            routes: Mutex::new(Routes::new(nodes)),
            security,
            timeout,
        };
        Ok(Api {
            inner: Arc::new(inner),
        })
    }

    /// Bound of a call beyond its wait.
    pub(crate) fn timeout(&self) -> Duration {
        self.inner.timeout
    }

    pub(crate) fn routes(&self) -> MutexGuard<'_, Routes> {
        self.inner
            .routes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What it shows and whom it trusts.
    pub fn security(&self) -> &Security {
        &self.inner.security
    }

    /// `GET /v1/map`, kept until a node tells of a newer version.
    pub async fn map(&self) -> Outcome<BucketMap> {
        if let Some(map) = &self.routes().map {
            return Outcome::Ok(map.clone());
        }
        let read: Outcome<BucketMap> = self.call(Method::GET, "/v1/map", None, 0, None).await;
        if let Outcome::Ok(map) = &read {
            self.routes().map = Some(map.clone());
        }
        read
    }

    /// The group of a lock, if the map is known.
    pub(crate) fn group_of(&self, name: &str) -> Option<u32> {
        self.routes().map.as_ref()?.group_of(name)
    }

    /// `POST /v1/sessions`. `lock` names a lock that the session is for (it chooses the group).
    pub async fn create_session(
        &self,
        ttl_ms: u64,
        label: &str,
        lock: Option<&str>,
    ) -> Outcome<SessionInfo> {
        let mut body = json!({ "ttl_ms": ttl_ms, "client": label });
        if let Some(lock) = lock {
            body["lock"] = json!(lock);
        }
        // With the map the request goes to the group's leader; without, to whom the present node names.
        let group = match lock {
            Some(lock) => self.map().await.ok().and_then(|map| map.group_of(lock)),
            None => Some(0),
        };
        let opened: Outcome<SessionInfo> = self
            .call(Method::POST, "/v1/sessions", Some(body), 0, group)
            .await;
        if let Outcome::Ok(info) = &opened {
            self.routes().told_of_map(info.map);
        }
        opened
    }

    /// `POST /v1/sessions/{id}:keepalive`. On `Ok` the session lives for `ttl_ms` from the moment this was called.
    pub async fn keepalive(&self, session: &str) -> Outcome<Alive> {
        self.call(
            Method::POST,
            &format!("/v1/sessions/{session}:keepalive"),
            None,
            0,
            group_of_session(session),
        )
        .await
    }

    /// `DELETE /v1/sessions/{id}`: ends it and frees its locks; the value is how many.
    pub async fn close(&self, session: &str) -> Outcome<u64> {
        let done: Outcome<Value> = self
            .call(
                Method::DELETE,
                &format!("/v1/sessions/{session}"),
                None,
                0,
                group_of_session(session),
            )
            .await;
        done.map(|value| value["released"].as_u64().unwrap_or(0))
    }

    /// `POST /v1/locks/{name}:acquire`.
    pub async fn acquire(
        &self,
        name: &str,
        session: &str,
        options: &AcquireOptions,
    ) -> Outcome<Grant> {
        let body = Some(acquire_body(session, options));
        let group = group_of_session(session);
        self.on_lock(Method::POST, name, ":acquire", body, options.wait_ms, group)
            .await
    }

    /// `POST /v1/locks/{name}:release`; the value is the re-entrant count that remains. A definite `not_held` means
    /// that this session does not hold the token (any more).
    pub async fn release(
        &self,
        name: &str,
        session: &str,
        token: u64,
        request_id: Option<u64>,
    ) -> Outcome<u32> {
        let mut body = json!({ "session": session, "token": token });
        if let Some(id) = request_id {
            body["request_id"] = json!(id);
        }
        let group = group_of_session(session);
        let done: Outcome<Value> = self
            .on_lock(Method::POST, name, ":release", Some(body), 0, group)
            .await;
        done.map(|value| value["remaining"].as_u64().unwrap_or(0) as u32)
    }

    /// `POST /v1/locks/{name}:withdraw`: undoes the acquire with this request id, whatever became of it; sent again or on
    /// its way still, it is refused (`withdrawn`).
    pub async fn withdraw(&self, name: &str, session: &str, request_id: u64) -> Outcome<Undone> {
        let body = json!({ "session": session, "request_id": request_id });
        let group = group_of_session(session);
        let done: Outcome<Withdrawn> = self
            .on_lock(Method::POST, name, ":withdraw", Some(body), 0, group)
            .await;
        done.map(|done| done.was)
    }

    /// `POST /v1/locks/{name}:check`: is this token still the current one?
    pub async fn check(&self, name: &str, token: u64) -> Outcome<bool> {
        let body = Some(json!({ "token": token }));
        let group = self.group_of(name);
        let done: Outcome<Value> = self
            .on_lock(Method::POST, name, ":check", body, 0, group)
            .await;
        done.map(|value| value["current"] == true)
    }

    /// `GET /v1/locks/{name}`: a linearizable read.
    pub async fn show(&self, name: &str) -> Outcome<LockInfo> {
        let group = self.group_of(name);
        self.on_lock(Method::GET, name, "", None, 0, group).await
    }

    async fn on_lock<T: DeserializeOwned>(
        &self,
        method: Method,
        name: &str,
        verb: &str,
        body: Option<Value>,
        wait_ms: u64,
        group: Option<u32>,
    ) -> Outcome<T> {
        match path_of(name, verb) {
            Ok(path) => self.call(method, &path, body, wait_ms, group).await,
            Err(error) => Outcome::DefiniteFail(error),
        }
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        wait_ms: u64,
        group: Option<u32>,
    ) -> Outcome<T> {
        let timeout = self.inner.timeout + Duration::from_millis(wait_ms);
        let attempts = async {
            for _ in 0..REDIRECTS {
                match self.once(method.clone(), path, body.as_ref(), group).await {
                    Ok(outcome) => return outcome,
                    Err(leader) => {
                        let leader = self.inner.security.url_of(&leader);
                        self.routes().led_by(group, leader);
                    }
                }
            }
            Outcome::DefiniteFail(CallError::local(
                "no_leader",
                "the nodes send each other away",
                Retry::Later,
            ))
        };
        match tokio::time::timeout(timeout, attempts).await {
            Ok(outcome) => outcome,
            Err(_) => {
                self.routes().failed(group);
                Outcome::Unknown(CallError::local(
                    "timeout",
                    format!("no answer in {timeout:?}"),
                    Retry::SameRequest,
                ))
            }
        }
    }

    /// One request to one node. `Err`: it did nothing and named the leader.
    async fn once<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        group: Option<u32>,
    ) -> Result<Outcome<T>, String> {
        let url = format!("{}{path}", self.routes().node(group));
        let mut request = self.inner.http.request(method, url);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Ok(self.transport(&error, group)),
        };
        let success = response.status().is_success();
        let bytes = match response.bytes().await {
            Ok(bytes) => bytes,
            Err(error) => return Ok(self.transport(&error, group)),
        };
        if success {
            return Ok(match serde_json::from_slice(&bytes) {
                Ok(value) => Outcome::Ok(value),
                Err(error) => {
                    Outcome::Unknown(CallError::local("protocol", error, Retry::SameRequest))
                }
            });
        }
        match serde_json::from_slice::<ErrorBody>(&bytes) {
            Ok(ErrorBody { error }) => self.refused(error, group),
            Err(error) => Ok(Outcome::Unknown(CallError::local(
                "protocol",
                error,
                Retry::SameRequest,
            ))),
        }
    }

    fn refused<T>(&self, wire: WireError, group: Option<u32>) -> Result<Outcome<T>, String> {
        if let Some(version) = wire.map {
            self.routes().told_of_map(version);
        }
        if wire.effect == "none"
            && let Some(leader) = wire.leader
        {
            return Err(leader);
        }
        let lost = matches!(wire.code.as_str(), "no_leader" | "no_map");
        if lost || matches!(wire.retry, Retry::OtherNode | Retry::SameRequest) {
            self.routes().failed(group);
        }
        Ok(wire.outcome())
    }

    fn transport<T>(&self, error: &reqwest::Error, group: Option<u32>) -> Outcome<T> {
        self.routes().failed(group);
        let why = with_causes(error);
        if error.is_connect() {
            return Outcome::DefiniteFail(CallError::local("connect", why, Retry::OtherNode));
        }
        Outcome::Unknown(CallError::local("transport", why, Retry::SameRequest))
    }

    /// Turns to the next node, for groups whose leader is not known.
    pub fn next_node(&self) {
        self.routes().failed(None);
    }

    /// The leader of a session's group is not known any more: the next request tries another node.
    pub(crate) fn forget_leader(&self, session: &str) {
        self.routes().failed(group_of_session(session));
    }
}

/// The body of an acquire.
pub(crate) fn acquire_body(session: &str, options: &AcquireOptions) -> Value {
    let mut body = json!({ "session": session, "wait_ms": options.wait_ms });
    match options.mode {
        Mode::Exclusive => {}
        Mode::Shared => body["mode"] = json!("shared"),
        Mode::Semaphore(permits) => {
            body["mode"] = json!("semaphore");
            body["permits"] = json!(permits);
        }
    }
    if let Some(owner) = &options.owner {
        body["owner"] = json!(owner);
    }
    if let Some(id) = options.request_id {
        body["request_id"] = json!(id);
    }
    if let Some(epoch) = options.epoch {
        body["epoch"] = json!(epoch);
    }
    body
}

/// A lock's path. With `.` or `..` as a part the URL would be that of another lock.
fn path_of(name: &str, verb: &str) -> Result<String, CallError> {
    if name.split('/').any(|part| matches!(part, "." | "..")) {
        let why = "lock name: must not have . or .. as a part";
        return Err(CallError::local("bad_request", why, Retry::No));
    }
    Ok(format!("/v1/locks/{}{verb}", percent_encode(name)))
}

/// An error with its causes: by itself it does not say why nobody was reached.
fn with_causes(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// Percent-encodes a lock's name for a path or a query; `/` stays.
pub fn percent_encode(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_for_paths() {
        assert_eq!(percent_encode("a/b c:d?ü"), "a/b%20c%3Ad%3F%C3%BC");
    }
}
