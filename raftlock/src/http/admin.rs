//! Tending a node.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::locks::lock_json;
use super::{ApiError, App, Caller};
use crate::backup::Backup;
use crate::machine::Machine;
use crate::raft::transfer_all;

/// Locks listed at most.
const LIST_LIMIT: usize = 1000;

/// `POST /v1/admin/transfer-leader`: hands this node's leaderships to others.
pub(super) async fn transfer_leader(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Result<Json<Value>, ApiError> {
    caller.may_tend()?;
    transfer_all(&app.replicas, app.config.id).await;
    let still = app.replicas.iter().filter(|raft| raft.is_leader()).count();
    Ok(Json(json!({ "still_leading": still })))
}

/// `POST /v1/admin/snapshot`: writes snapshots of all groups in the background.
pub(super) async fn snapshot(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Result<Json<Value>, ApiError> {
    caller.may_tend()?;
    for raft in app.replicas.iter() {
        raft.trigger()
            .snapshot()
            .await
            .map_err(|error| ApiError::stopped(&error))?;
    }
    Ok(Json(json!({ "groups": app.groups.len() })))
}

/// `GET /v1/admin/backup`: all groups as this node has applied them, one after the other.
pub(super) async fn backup(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Result<Vec<u8>, ApiError> {
    caller.may_tend()?;
    let groups = app.groups.iter().chain([&app.map_group]);
    let machines: Vec<Machine> = groups.map(|group| group.shared.machine().clone()).collect();
    let written = tokio::task::spawn_blocking(move || {
        let mut backup = Backup::default();
        for machine in machines {
            backup.push(&machine)?;
        }
        backup.to_bytes()
    });
    let written = written.await.map_err(std::io::Error::other).flatten();
    written.map_err(|error| ApiError::stopped(&error))
}

#[derive(Deserialize)]
pub(super) struct List {
    #[serde(default)]
    prefix: String,
}

/// `GET /v1/locks?prefix=`: locks of the groups that this node leads, as it sees them; not linearizable.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(ask): Query<List>,
) -> Json<Value> {
    let mut found = Vec::new();
    for (raft, group) in app.replicas.iter().zip(&app.groups) {
        if !raft.is_leader() {
            continue;
        }
        let machine = group.shared.machine().clone();
        let fitting = machine
            .locks()
            .filter(|(name, _)| name.starts_with(&ask.prefix) && caller.sees(name));
        let names: Vec<String> = fitting
            .take(LIST_LIMIT)
            .map(|(name, _)| name.to_string())
            .collect();
        found.extend(names.iter().map(|name| lock_json(group, name)));
    }
    found.sort_by_key(|lock| lock["name"].as_str().map(str::to_owned));
    found.truncate(LIST_LIMIT);
    Json(json!({ "locks": found, "limit": LIST_LIMIT }))
}
