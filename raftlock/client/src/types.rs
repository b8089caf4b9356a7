//! What is asked of a node and what it answers.

use serde::Deserialize;
use serde_json::Value;

/// How many may hold a lock together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// One.
    #[default]
    Exclusive,
    /// Readers.
    Shared,
    /// So many.
    Semaphore(u32),
}

/// A session as opened.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SessionInfo {
    /// Its id.
    pub session: String,
    /// Granted TTL, ms.
    pub ttl_ms: u64,
    /// Epoch of the leader that answered.
    pub epoch: u64,
    /// The group that keeps it; locks of other groups need another session.
    #[serde(default)]
    pub group: u32,
    /// Version of the bucket map by which the node chose the group.
    #[serde(default)]
    pub map: u64,
}

/// A keepalive's answer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Alive {
    /// TTL from the moment the keepalive was *sent* (at the latest), ms.
    pub ttl_ms: u64,
    /// Epoch of the leader that answered.
    pub epoch: u64,
}

/// A lock held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Grant {
    /// The fencing token, to be sent with every write.
    pub token: u64,
    /// Re-entrant count.
    #[serde(default)]
    pub count: u32,
}

/// What an acquire asks for.
#[derive(Debug, Clone, Default)]
pub struct AcquireOptions {
    /// The mode.
    pub mode: Mode,
    /// 0: try only.
    pub wait_ms: u64,
    /// Opt-in re-entrancy.
    pub owner: Option<String>,
    /// Unique within the session (below 2^63); the same id again gets the same answer.
    pub request_id: Option<u64>,
    /// Refuse if the leader changed since.
    pub epoch: Option<u64>,
}

/// What a withdrawal found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Undone {
    /// The acquire was in the queue.
    Waiting,
    /// It was granted; the grant is given back.
    Held,
    /// Nothing of it was there.
    Unknown,
}

/// A lock as `GET /v1/locks/{name}` shows it.
#[derive(Debug, Clone, Deserialize, serde::Serialize)]
pub struct LockInfo {
    /// Its name.
    pub name: String,
    /// The group that keeps it.
    pub group: u32,
    /// Is it held?
    pub held: bool,
    /// Grants: `session`, `token`, `mode`, `count`, `held_for_ms`; not more than the node shows.
    pub holders: Vec<Value>,
    /// How many there are.
    pub holder_count: u64,
    /// Clients in the queue.
    pub waiters: u64,
    /// Kept back after a failed holder.
    pub delayed: bool,
}
