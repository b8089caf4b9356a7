//! The HTTP API: JSON over HTTP/1.1, described request by request in docs/raftlock-api.md.

mod admin;
mod error;
mod locks;
mod sessions;
mod status;
mod stream;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use serde_json::{Value, json};

pub use error::ApiError;
#[cfg(test)]
pub(crate) use stream::Lines;

use crate::Config;
use crate::buckets::BucketMap;
use crate::group::Group;
use crate::machine::SessionId;
use crate::raft::{PeerBook, Raft};

/// Largest request body, bytes.
const BODY_LIMIT: usize = 64 << 10;

/// What the handlers share.
pub struct App {
    /// The node's configuration.
    pub config: Config,
    /// The groups by number.
    pub groups: Vec<Group>,
    /// Which group keeps which name.
    pub buckets: BucketMap,
    /// Their replication.
    pub rafts: Arc<Vec<Raft>>,
    /// Where the other nodes are.
    pub book: Arc<PeerBook>,
}

impl App {
    /// The group that keeps a lock's name.
    fn group_of_name(&self, name: &str) -> Result<&Group, ApiError> {
        let group = self.buckets.group_of(name);
        self.groups
            .get(group as usize)
            .ok_or_else(|| ApiError::bad_request(format!("no group {group}")))
    }

    /// The group that keeps a session.
    fn group_of_session(&self, session: SessionId) -> Result<&Group, ApiError> {
        self.groups
            .get(group_of(session) as usize)
            .ok_or_else(ApiError::no_session)
    }

    /// A group by its number.
    fn group(&self, number: u32) -> Result<&Group, ApiError> {
        let last = self.groups.len() - 1;
        self.groups
            .get(number as usize)
            .ok_or_else(|| ApiError::bad_request(format!("there are groups 0 to {last}")))
    }

    /// Client address of a node.
    fn address(&self, node: Option<u64>) -> Option<String> {
        self.book.url(node?)
    }
}

/// The group in a session's id.
pub fn group_of(session: SessionId) -> u32 {
    (session >> 56) as u32
}

/// A session's id as clients see it.
pub fn session_text(session: SessionId) -> String {
    format!("{session:016x}")
}

fn parse_session(text: &str) -> Result<SessionId, ApiError> {
    let sane = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    sane.then(|| u64::from_str_radix(text, 16).ok())
        .flatten()
        .ok_or_else(|| ApiError::bad_request("a session is 16 hexadecimal digits".to_owned()))
}

/// All routes.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/healthz", get(health))
        .route("/v1/sessions", post(sessions::open))
        .route(
            "/v1/sessions/{rest}",
            post(sessions::act).delete(sessions::close),
        )
        .route("/v1/locks/{*rest}", post(locks::act).get(locks::show))
        .route("/v1/locks", get(admin::list))
        .route("/v1/admin/transfer-leader", post(admin::transfer_leader))
        .route("/v1/admin/snapshot", post(admin::snapshot))
        .route("/v1/stream", get(stream::upgrade))
        .route("/v1/status", get(status::status))
        .route("/v1/map", get(status::map))
        .fallback(|| async { ApiError::new(StatusCode::NOT_FOUND, "not_found", "no such path") })
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(app)
}

async fn health(State(app): State<Arc<App>>) -> axum::Json<Value> {
    axum::Json(json!({ "status": "ok", "node": app.config.id, "groups": app.groups.len() }))
}
