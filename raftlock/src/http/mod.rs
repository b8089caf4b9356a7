//! The HTTP API: JSON over HTTP/1.1, described request by request in docs/raftlock-api.md.

mod access;
mod admin;
mod error;
mod locks;
mod sessions;
mod spaces;
mod status;
mod stream;
mod watching;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::routing::{get, post};

use access::Access;
pub(crate) use access::Caller;
pub use error::ApiError;
use spaces::Spaces;
#[cfg(test)]
pub(crate) use stream::Lines;

use crate::Config;
use crate::buckets::BucketMap;
use crate::group::Group;
use crate::machine::{SessionId, namespace_of};
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
    access: Access,
    spaces: Spaces,
    /// Keepalives refused.
    renew_failures: AtomicU64,
}

impl App {
    /// What the handlers of a node share.
    pub fn new(
        config: Config,
        groups: Vec<Group>,
        rafts: Arc<Vec<Raft>>,
        book: Arc<PeerBook>,
    ) -> Arc<Self> {
        Arc::new(App {
            buckets: BucketMap::even(config.groups),
            access: Access::of(&config),
            spaces: Spaces::of(&config),
            renew_failures: AtomicU64::new(0),
            config,
            groups,
            rafts,
            book,
        })
    }

    /// The group of a lock that this caller may use now.
    fn enter(&self, caller: &Caller, name: &str) -> Result<&Group, ApiError> {
        let group = self.enter_uncounted(caller, name)?;
        self.spaces.count(namespace_of(name))?;
        Ok(group)
    }

    /// The same, beyond the namespace's rate: giving a lock back is never refused for it.
    fn enter_uncounted(&self, caller: &Caller, name: &str) -> Result<&Group, ApiError> {
        locks::check_name(name)?;
        let namespace = namespace_of(name);
        caller.may_use(namespace)?;
        self.spaces.limits(namespace)?;
        self.group_of_name(name)
    }

    /// The group of a session that this caller may use. One that this node does not know is for the group to refuse.
    fn enter_session(&self, caller: &Caller, session: SessionId) -> Result<&Group, ApiError> {
        let group = self.group_of_session(session)?;
        if *caller != Caller::Any
            && let Some(known) = group.shared.machine().session(session)
        {
            caller.may_use(&known.namespace)?;
        }
        Ok(group)
    }

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
        .route("/healthz", get(watching::health))
        .route("/readyz", get(watching::ready))
        .route("/metrics", get(watching::metrics))
        .route("/v1/events", get(watching::events))
        .route("/v1/sessions", post(sessions::open))
        .route(
            "/v1/sessions/{rest}",
            post(sessions::act).delete(sessions::close),
        )
        .route("/v1/locks/{*rest}", post(locks::act).get(locks::show))
        .route("/v1/locks", get(admin::list))
        .route("/v1/admin/transfer-leader", post(admin::transfer_leader))
        .route("/v1/admin/snapshot", post(admin::snapshot))
        .route("/v1/admin/backup", get(admin::backup))
        .route("/v1/stream", get(stream::upgrade))
        .route("/v1/status", get(status::status))
        .route("/v1/map", get(status::map))
        .fallback(|| async { ApiError::new(StatusCode::NOT_FOUND, "not_found", "no such path") })
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(app)
}
