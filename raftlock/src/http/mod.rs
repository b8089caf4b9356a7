//! The HTTP API: JSON over HTTP/1.1, described request by request in docs/raftlock-api.md.

mod access;
mod admin;
mod error;
mod listen;
mod locks;
mod places;
mod sessions;
mod socket;
mod spaces;
mod status;
mod stream;
mod typed;
mod watching;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware::from_fn;
use axum::routing::{get, post};

use access::Access;
pub(crate) use access::Caller;
pub use error::ApiError;
pub use listen::serve_clients;
pub use places::room;
use spaces::Spaces;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

#[cfg(test)]
pub(crate) use stream::Lines;

use crate::Config;
use crate::buckets::{BucketMap, StoredMap};
use crate::group::{Answer, Cmd, Group};
use crate::host;
use crate::machine::{Op, SessionId, namespace_of};
use crate::raft::{PeerBook, Replica};

/// Largest request body, bytes.
const BODY_LIMIT: usize = 64 << 10;

/// What the handlers share.
pub struct App {
    /// The node's configuration.
    pub config: Config,
    /// The groups of locks by number.
    pub groups: Vec<Group>,
    /// The group that keeps the bucket map.
    pub(crate) map_group: Group,
    /// Their replication.
    pub replicas: Arc<Vec<Replica>>,
    /// Where the other nodes are.
    pub book: Arc<PeerBook>,
    /// Streams, which outlive their requests.
    pub tasks: TaskTracker,
    /// Ends streams and watchers when the node stops.
    pub stopping: CancellationToken,
    policy: RwLock<Arc<Policy>>,
    /// Counts the reloads of the policy.
    reloads: watch::Sender<u64>,
    /// Keepalives refused.
    renew_failures: AtomicU64,
    /// Streams dropped because their clients did not read.
    slow_readers: AtomicU64,
}

/// Who may do what, and how much of it. It can be read anew while the node serves.
pub(crate) struct Policy {
    access: Access,
    spaces: Spaces,
}

impl Policy {
    fn of(config: &Config) -> Arc<Self> {
        Arc::new(Policy {
            access: Access::of(config),
            spaces: Spaces::of(config),
        })
    }
}

impl App {
    /// What the handlers of a node share. The last group keeps the bucket map, those before it keep locks.
    pub fn new(
        config: Config,
        mut groups: Vec<Group>,
        replicas: Arc<Vec<Replica>>,
        book: Arc<PeerBook>,
    ) -> Arc<Self> {
        let map_group = groups
            .pop()
            .expect("invariant: a node has a group for the bucket map");
        Arc::new(App {
            map_group,
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
            policy: RwLock::new(Policy::of(&config)),
            reloads: watch::channel(0).0,
            renew_failures: AtomicU64::new(0),
            slow_readers: AtomicU64::new(0),
            config,
            groups,
            replicas,
            book,
        })
    }

    /// The policy now.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&policy)
    }

    /// Takes tokens, namespaces and limits of a configuration from now on. Streams whose token is none any more are closed.
    pub fn reload(&self, config: &Config) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Policy::of(config);
        self.reloads.send_modify(|count| *count += 1);
    }

    /// Changes with every reload.
    fn reloaded(&self) -> watch::Receiver<u64> {
        self.reloads.subscribe()
    }

    /// The group of a lock that this caller may use now.
    fn enter(&self, caller: &Caller, name: &str) -> Result<&Group, ApiError> {
        let group = self.enter_uncounted(caller, name)?;
        self.policy().spaces.count(namespace_of(name))?;
        Ok(group)
    }

    /// The same, beyond the namespace's rate: giving a lock back is never refused for it.
    fn enter_uncounted(&self, caller: &Caller, name: &str) -> Result<&Group, ApiError> {
        locks::check_name(name)?;
        let namespace = namespace_of(name);
        caller.may_use(namespace)?;
        self.policy().spaces.limits(namespace)?;
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
        let group = self.map()?.group_of(name);
        self.groups
            .get(group as usize)
            .ok_or_else(|| ApiError::bad_request(format!("no group {group}")))
    }

    /// The bucket map as this node knows it.
    pub(crate) fn map(&self) -> Result<Arc<BucketMap>, ApiError> {
        let known = self.map_group.shared.machine().map().cloned();
        known.ok_or_else(ApiError::no_map)
    }

    /// The groups have stopped: who waits for them learns that the outcome is not known, and streams end.
    pub(crate) fn stopped(&self) {
        for group in self.groups.iter().chain([&self.map_group]) {
            group.shared.hub().deposed();
        }
        self.stopping.cancel();
        self.tasks.close();
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

    /// Counts a keepalive that prolonged nothing; one that was only sent on to the leader is none.
    fn renewal_failed(&self, answer: &Answer) {
        if !matches!(answer, Answer::NotLeader { leader: Some(_) }) {
            self.renew_failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Client address of a node.
    fn address(&self, node: Option<u64>) -> Option<String> {
        self.book.url(node?)
    }
}

/// Makes the first bucket map, at the node that leads its group.
pub(crate) async fn keep_map(app: Arc<App>) {
    while app.map().is_err() {
        let first = StoredMap::V1(Arc::new(BucketMap::even(app.config.groups)));
        let op = Op::SetMap {
            expected: 0,
            map: first,
        };
        let _ = app.map_group.call(|to| Cmd::Propose { op, to }).await;
        host::sleep(Duration::from_millis(10)).await;
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
        .route("/v1/stream", get(socket::upgrade))
        .route("/v1/status", get(status::status))
        .route("/v1/map", get(status::map))
        .fallback(|| async { ApiError::new(StatusCode::NOT_FOUND, "not_found", "no such path") })
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(from_fn(typed::around))
        .with_state(app)
}
