//! How a node is set up.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A node's configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// This node's number, unique in the cluster, from 1.
    pub id: u64,
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Directory of this node's state; created if missing.
    pub data: PathBuf,
    /// Peer address of every replica, this one too; empty for a lone node.
    pub peers: BTreeMap<u64, String>,
    /// Name of the cluster; replicas of another name are refused.
    pub cluster: String,
    /// Base URL under which clients reach this node; made from `listen` if empty.
    pub client_url: String,
    /// Heartbeat interval between replicas. An election begins 8 to 10 of them after the last one heard.
    pub heartbeat: Duration,
    /// Bytes of log after which a group takes a snapshot.
    pub snapshot_bytes: usize,
    /// Groups that share the name space.
    pub groups: u32,
    /// Shortest TTL granted.
    pub min_ttl: Duration,
    /// Longest TTL granted.
    pub max_ttl: Duration,
    /// TTL of a session that names none.
    pub default_ttl: Duration,
    /// Lock-delay after a failed holder.
    pub lock_delay: Duration,
    /// Waiters for one lock before more are refused.
    pub max_waiters: u32,
    /// Longest wait for a lock.
    pub max_wait: Duration,
    /// False loses acknowledged grants at a power cut.
    pub sync: bool,
}

impl Config {
    /// A lone node with defaults.
    pub fn single(listen: SocketAddr, data: PathBuf) -> Self {
        Config {
            id: 1,
            listen,
            data,
            peers: BTreeMap::new(),
            cluster: "raftlock".to_owned(),
            client_url: String::new(),
            heartbeat: Duration::from_millis(80),
            snapshot_bytes: 32 << 20,
            groups: 1,
            min_ttl: Duration::from_millis(100),
            max_ttl: Duration::from_secs(60),
            default_ttl: Duration::from_secs(15),
            lock_delay: Duration::ZERO,
            max_waiters: 500,
            max_wait: Duration::from_secs(300),
            sync: true,
        }
    }

    /// Does it make sense?
    pub fn check(&self) -> Result<(), String> {
        let count = self.peers.len();
        if count > 0 && !self.peers.contains_key(&self.id) {
            return Err(format!("--peers does not name this replica, {}", self.id));
        }
        if count > 1 && count.is_multiple_of(2) {
            return Err(format!(
                "{count} replicas bear no more failures than {}; use 1, 3 or 5",
                count - 1
            ));
        }
        if !(1..=64).contains(&self.groups) {
            return Err("--groups must be 1 to 64".to_owned());
        }
        Ok(())
    }

    /// The TTL granted to one who asks for `ttl_ms`.
    pub fn grant_ttl(&self, ttl_ms: Option<u64>) -> u32 {
        let asked = ttl_ms.map_or(self.default_ttl, Duration::from_millis);
        let granted = asked.clamp(self.min_ttl, self.max_ttl.max(self.min_ttl));
        u32::try_from(granted.as_millis()).unwrap_or(u32::MAX)
    }
}
