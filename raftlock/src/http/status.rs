//! What the cluster looks like from this node.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::{ApiError, App, Caller};
use crate::buckets::BUCKETS;
use crate::raft::status as replica_status;

/// `GET /v1/status`: this node's groups, their leaders and sizes.
pub(super) async fn status(State(app): State<Arc<App>>, _: Caller) -> Json<Value> {
    let mut replicas = replica_status(&app.replicas);
    let keeper = replicas.split_off(app.groups.len()).pop();
    let groups: Vec<Value> = replicas
        .into_iter()
        .zip(&app.groups)
        .map(|(replica, group)| {
            let counts = group.shared.machine().counts();
            json!({
                "group": replica.group,
                "state": replica.state,
                "term": replica.term,
                "leader": replica.leader,
                "leader_url": app.address(replica.leader),
                "last_log": replica.last_log,
                "applied": replica.applied,
                "snapshot": replica.snapshot,
                "sessions": counts.sessions,
                "held": counts.held,
                "waiting": counts.waiting,
            })
        })
        .collect();
    Json(json!({
        "node": app.config.id,
        "replicas": app.config.peers.len().max(1),
        "version": env!("CARGO_PKG_VERSION"),
        "groups": groups,
        "map": keeper.map(|replica| json!({
            "version": app.map().map_or(0, |map| map.version),
            "state": replica.state,
            "term": replica.term,
            "leader": replica.leader,
        })),
    }))
}

/// `GET /v1/map`: which group keeps which bucket; clients cache it by its version.
pub(super) async fn map(State(app): State<Arc<App>>, _: Caller) -> Result<Json<Value>, ApiError> {
    let map = app.map()?;
    Ok(Json(
        json!({ "version": map.version, "buckets": BUCKETS, "groups": map.groups }),
    ))
}
