//! Sessions: open, keepalive, close.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{ApiError, App, parse_session, session_text};
use crate::group::{Answer, Cmd, Group};
use crate::machine::{Op, Reply, SessionId};

const LABEL_LIMIT: usize = 128;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Open {
    ttl_ms: Option<u64>,
    client: String,
    /// A lock that the session is for: chooses the group.
    lock: Option<String>,
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
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let ask: Open = parse(&body)?;
    let group = match (&ask.lock, ask.group) {
        (Some(name), _) => app.group_of_name(name)?,
        (None, number) => app.group(number.unwrap_or(0))?,
    };
    open_in(&app, group, ask.ttl_ms, &ask.client).await
}

async fn open_in(
    app: &App,
    group: &Group,
    ttl_ms: Option<u64>,
    client: &str,
) -> Result<Json<Value>, ApiError> {
    let op = open_op(app, group, ttl_ms, client)?;
    match group.call(|to| Cmd::Propose { op, to }).await {
        Answer::Reply(Reply::Opened { session }) => Ok(Json(opened_json(app, group, session))),
        other => Err(ApiError::of(&other, app)),
    }
}

/// The operation that opens a session under a fresh id.
pub(super) fn open_op(
    app: &App,
    group: &Group,
    ttl_ms: Option<u64>,
    client: &str,
) -> Result<Op, ApiError> {
    if client.len() > LABEL_LIMIT {
        return Err(ApiError::bad_request(format!(
            "client is longer than {LABEL_LIMIT} bytes"
        )));
    }
    let session: SessionId = (u64::from(group.id) << 56) | (crate::chance::random() >> 8);
    Ok(Op::Open {
        session,
        ttl_ms: app.config.grant_ttl(ttl_ms),
        label: Arc::from(client),
    })
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
    })
}

/// `POST /v1/sessions/{id}:keepalive`
pub(super) async fn act(
    State(app): State<Arc<App>>,
    Path(rest): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let Some((id, "keepalive")) = rest.rsplit_once(':') else {
        return Err(ApiError::bad_request(
            "the path is /v1/sessions/{id}:keepalive",
        ));
    };
    let session = parse_session(id)?;
    match app
        .group_of_session(session)?
        .call(|to| Cmd::Keepalive { session, to })
        .await
    {
        Answer::Alive { ttl_ms, epoch } => Ok(Json(json!({ "ttl_ms": ttl_ms, "epoch": epoch }))),
        other => Err(ApiError::of(&other, &app)),
    }
}

/// `DELETE /v1/sessions/{id}`
pub(super) async fn close(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let session = parse_session(&id)?;
    let op = Op::Close { session };
    match app
        .group_of_session(session)?
        .call(|to| Cmd::Propose { op, to })
        .await
    {
        Answer::Reply(Reply::Ended { released }) => {
            Ok(Json(json!({ "closed": true, "released": released })))
        }
        other => Err(ApiError::of(&other, &app)),
    }
}
