//! Sessions: open, keepalive, close.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::locks::check_name;
use super::{ApiError, App, Caller, parse_session, session_text};
use crate::group::{Answer, Cmd, Group};
use crate::machine::{DEFAULT_NAMESPACE, Op, Reply, SessionId, namespace_of};

const LABEL_LIMIT: usize = 128;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Open {
    ttl_ms: Option<u64>,
    client: String,
    /// A lock that the session is for: chooses the namespace and the group.
    lock: Option<String>,
    namespace: Option<String>,
    group: Option<u32>,
}

/// Parses a body; an empty one is `{}`.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| ApiError::bad_request(format!("body: {error}")))
}

/// `POST /v1/sessions`
pub(super) async fn open(
    State(app): State<Arc<App>>,
    caller: Caller,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let ask: Open = parse(&body)?;
    let wanted = Wanted {
        ttl_ms: ask.ttl_ms,
        client: &ask.client,
        lock: ask.lock.as_deref(),
        namespace: ask.namespace.as_deref(),
        group: ask.group,
    };
    let (group, _, op) = open_op(&app, &caller, wanted)?;
    match group.call(|to| Cmd::Propose { op, to }).await {
        Answer::Reply(Reply::Opened { session }) => Ok(Json(opened_json(&app, group, session))),
        other => Err(ApiError::of(&other, &app)),
    }
}

/// What a new session is to be.
pub(super) struct Wanted<'a> {
    pub ttl_ms: Option<u64>,
    pub client: &'a str,
    pub lock: Option<&'a str>,
    pub namespace: Option<&'a str>,
    pub group: Option<u32>,
}

/// The group, a fresh id, and the operation that opens a session there under it.
pub(super) fn open_op<'a>(
    app: &'a App,
    caller: &Caller,
    wanted: Wanted<'_>,
) -> Result<(&'a Group, SessionId, Op), ApiError> {
    let client = wanted.client;
    let namespace = match (wanted.lock, wanted.namespace) {
        (Some(lock), None) => namespace_of(lock),
        (None, Some(named)) => {
            check_namespace(named)?;
            named
        }
        (None, None) => DEFAULT_NAMESPACE,
        (Some(lock), Some(named)) if namespace_of(lock) == named => named,
        (Some(_), Some(_)) => {
            return Err(ApiError::bad_request("lock is of another namespace"));
        }
    };
    caller.may_use(namespace)?;
    let policy = app.policy();
    let limits = policy.spaces.limits(namespace)?;
    policy.spaces.count(namespace)?;
    let group = match wanted.lock {
        Some(lock) => {
            check_name(lock)?;
            let group = app.group_of_name(lock)?;
            if wanted.group.is_some_and(|wanted| wanted != group.id) {
                let id = group.id;
                return Err(ApiError::bad_request(format!("lock is of group {id}")));
            }
            group
        }
        None => app.group(wanted.group.unwrap_or(0))?,
    };
    if client.len() > LABEL_LIMIT {
        return Err(ApiError::bad_request(format!(
            "client is longer than {LABEL_LIMIT} bytes"
        )));
    }
    let session: SessionId = (u64::from(group.id) << 56) | (crate::chance::random() >> 8);
    let op = Op::Open {
        session,
        ttl_ms: limits.grant_ttl(wanted.ttl_ms),
        label: Arc::from(client),
        namespace: Arc::from(namespace),
        max_sessions: limits.max_sessions,
    };
    Ok((group, session, op))
}

/// A namespace is what may stand before the first `/` of a name.
fn check_namespace(name: &str) -> Result<(), ApiError> {
    if name.contains('/') {
        return Err(ApiError::bad_request("namespace: must not contain /"));
    }
    check_name(name)
}

/// A session just opened, as clients are told.
pub(super) fn opened_json(app: &App, group: &Group, session: SessionId) -> Value {
    let machine = group.shared.machine();
    json!({
        "session": session_text(session),
        "ttl_ms": machine.session(session).map_or(0, |session| session.ttl_ms),
        "epoch": machine.epoch(),
        "group": group.id,
        "groups": app.groups.len(),
        "map": app.map().map_or(0, |map| map.version),
    })
}

/// `POST /v1/sessions/{id}:keepalive`
pub(super) async fn act(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(rest): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let Some((id, "keepalive")) = rest.rsplit_once(':') else {
        return Err(ApiError::bad_request(
            "the path is /v1/sessions/{id}:keepalive",
        ));
    };
    let session = parse_session(id)?;
    match app
        .enter_session(&caller, session)?
        .call(|to| Cmd::Keepalive { session, to })
        .await
    {
        Answer::Alive { ttl_ms, epoch } => Ok(Json(json!({ "ttl_ms": ttl_ms, "epoch": epoch }))),
        other => {
            app.renewal_failed(&other);
            Err(ApiError::of(&other, &app))
        }
    }
}

/// `DELETE /v1/sessions/{id}`
pub(super) async fn close(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let session = parse_session(&id)?;
    let op = Op::Close { session };
    match app
        .enter_session(&caller, session)?
        .call(|to| Cmd::Propose { op, to })
        .await
    {
        Answer::Reply(Reply::Ended { released }) => {
            Ok(Json(json!({ "closed": true, "released": released })))
        }
        other => Err(ApiError::of(&other, &app)),
    }
}
