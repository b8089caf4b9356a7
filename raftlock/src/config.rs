//! How a node is set up.

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

    /// The TTL granted to one who asks for `ttl_ms`.
    pub fn grant_ttl(&self, ttl_ms: Option<u64>) -> u32 {
        let asked = ttl_ms.map_or(self.default_ttl, Duration::from_millis);
        let granted = asked.clamp(self.min_ttl, self.max_ttl.max(self.min_ttl));
        u32::try_from(granted.as_millis()).unwrap_or(u32::MAX)
    }
}
