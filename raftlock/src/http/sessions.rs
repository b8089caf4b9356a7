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
        (None, number) => app
            .groups
            .get(number.unwrap_or(0) as usize)
            .ok_or_else(|| {
                ApiError::bad_request(format!("there are groups 0 to {}", app.groups.len() - 1))
            })?,
    };
    open_in(&app, group, ask.ttl_ms, &ask.client).await
}

async fn open_in(
    app: &App,
    group: &Group,
    ttl_ms: Option<u64>,
    client: &str,
) -> Result<Json<Value>, ApiError> {
    if client.len() > LABEL_LIMIT {
        return Err(ApiError::bad_request(format!(
            "client is longer than {LABEL_LIMIT} bytes"
        )));
    }
    let ttl_ms = app.config.grant_ttl(ttl_ms);
    let session: SessionId = (u64::from(group.id) << 56) | (rand::random::<u64>() >> 8);
    let op = Op::Open {
        session,
        ttl_ms,
        label: Arc::from(client),
    };
    match group.call(|to| Cmd::Propose { op, to }).await {
        Answer::Reply(Reply::Opened { session }) => Ok(Json(json!({
            "session": session_text(session),
            "ttl_ms": ttl_ms,
            "epoch": group.shared.machine().epoch(),
            "group": group.id,
            "groups": app.groups.len(),
        }))),
        other => Err(ApiError::of(&other, app)),
    }
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
