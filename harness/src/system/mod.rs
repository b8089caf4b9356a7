//! The lock services: which servers each is made of, when it is ready, what it promises and what
//! it can do. One file a service, and one line in [`SYSTEMS`].
//!
//! A system never names a host: it describes its nodes by [`NodeSpec`]s and reaches them by the
//! addresses of a [`Site`].

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use fencepost_nemesis::env::{LeaderHint, Promote, ServerClock, TransferLeader};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::host::{NodeSpec, Site};

mod common;
mod etcd;
mod http;
mod noop;
mod pg;
mod postgres;
mod raftlock;
mod redis;
mod redis_failover;
mod redlock;
mod resp;
mod zookeeper;

/// Parameters of a system, from a scenario's `[system]` table or `--system-param`.
pub type Params = Map<String, Value>;

/// One line: name, what it is, how to make it from parameters.
pub struct SystemEntry {
    pub name: &'static str,
    pub about: &'static str,
    pub make: fn(Params) -> Result<Box<dyn System>, SystemError>,
}

/// Every lock service that can be run.
pub const SYSTEMS: &[SystemEntry] = &[
    SystemEntry {
        name: "raftlock",
        about: "our own lock service, embedded: nothing to install",
        make: raftlock::make,
    },
    SystemEntry {
        name: "redis",
        about: "one Redis server; SET NX PX, fence by INCR",
        make: redis::make,
    },
    SystemEntry {
        name: "redis-failover",
        about: "Redis primary, two replicas, three sentinels with a quorum of two",
        make: redis_failover::make,
    },
    SystemEntry {
        name: "redlock",
        about: "five independent Redis masters and the Redlock algorithm; no fence",
        make: redlock::make,
    },
    SystemEntry {
        name: "etcd",
        about: "etcd, three or five nodes; its lock service, fence = create revision",
        make: etcd::make,
    },
    SystemEntry {
        name: "zookeeper",
        about: "ZooKeeper, three nodes, tickTime 200 ms; the lock recipe, fence = czxid",
        make: zookeeper::make,
    },
    SystemEntry {
        name: "postgres",
        about: "PostgreSQL; advisory and row locks that end with the connection",
        make: postgres::make,
    },
    SystemEntry {
        name: "noop",
        about: "no servers; measures the harness itself",
        make: noop::make,
    },
];

/// The system of that name, configured.
///
/// Every system takes `release` (of the image, such as `7.0`) and `disk_mb` (a small disk under each
/// node's data).
///
/// # Errors
/// An unknown name, or a parameter that the system does not know.
pub fn open(name: &str, mut params: Params) -> Result<Box<dyn System>, SystemError> {
    let entry = SYSTEMS
        .iter()
        .find(|s| s.name == name)
        .ok_or_else(|| SystemError::Unknown {
            name: name.into(),
            known: SYSTEMS
                .iter()
                .map(|s| s.name)
                .collect::<Vec<_>>()
                .join(", "),
        })?;
    let common = common::Common::take(entry.name, &mut params)?;
    common.around((entry.make)(params)?)
}

#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    #[error("no system is called {name:?}: there are {known}")]
    Unknown { name: String, known: String },
    #[error("system {system}: {reason}")]
    Params {
        system: &'static str,
        reason: String,
    },
    #[error("{system} was not ready within {within:?}: {reason}; see the logs of its nodes")]
    NotReady {
        system: &'static str,
        within: Duration,
        reason: String,
    },
}

/// What a service promises: `run.json`'s `system` (docs/history-format.md).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    pub name: String,
    /// Read from a server; empty until [`System::join`].
    pub version: String,
    pub lease: bool,
    pub fence: bool,
    pub fifo: bool,
    pub shared: bool,
    pub reentrant: bool,
    pub granularity_ms: u64,
    pub min_ttl_ms: u64,
    pub lock_delay_ms: u64,
    pub ends_with_connection: bool,
    /// What was acknowledged outlives the death of a server.
    pub durable: bool,
    /// A failover may promote a server that has not heard of what was acknowledged.
    pub asynchronous: bool,
}

impl Facts {
    /// A leased exclusive lock of millisecond granularity, without a fence.
    #[must_use]
    pub fn leased(name: &str) -> Self {
        Self {
            name: name.into(),
            version: String::new(),
            lease: true,
            fence: false,
            fifo: false,
            shared: false,
            reentrant: false,
            granularity_ms: 1,
            min_ttl_ms: 1,
            lock_delay_ms: 0,
            ends_with_connection: false,
            durable: true,
            asynchronous: false,
        }
    }
}

/// The `system` of a worker's `init` request (docs/worker-protocol.md).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClientInit {
    /// Which client implementation a worker uses; several systems may share one.
    pub name: String,
    pub endpoints: Vec<Endpoint>,
    pub params: Params,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    pub name: String,
    pub addr: SocketAddr,
}

/// A configured lock service.
#[async_trait]
pub trait System: Send + Sync {
    fn facts(&self) -> Facts;

    /// Its servers, in order: `node:0`, `node:1`, … Pure: called before anything runs.
    fn nodes(&self, site: &Site) -> Vec<NodeSpec>;

    /// What clients are told. Pure.
    fn client(&self, site: &Site) -> ClientInit;

    /// The TCP port that answers a connection at a node, for probes.
    fn port(&self, node: usize) -> Option<u16>;

    /// Called once the nodes run: forms the cluster where that takes a command, waits until it serves, and
    /// reads the version from a server.
    ///
    /// # Errors
    /// [`SystemError::NotReady`] after `within`.
    async fn join(&self, site: &Site, within: Duration) -> Result<Service, SystemError>;
}

/// A service that answers, and what it can do for faults.
#[derive(Clone, Default)]
pub struct Service {
    pub version: String,
    pub leader_hint: Option<Arc<dyn LeaderHint>>,
    pub transfer_leader: Option<Arc<dyn TransferLeader>>,
    pub promote: Option<Arc<dyn Promote>>,
    pub server_clock: Option<Arc<dyn ServerClock>>,
}

/// What every client of `fencepost worker` understands (docs/worker-protocol.md).
const WORKER: [&str; 3] = ["watchdog", "deadline_check", "margin_ms"];

/// Takes out of `params` what is for the client: the named keys, and whatever the table `client` holds.
pub(crate) fn client_params(params: &mut Params, keys: &[&str]) -> Params {
    let mut client = match params.remove("client") {
        Some(Value::Object(table)) => table,
        Some(other) => Params::from_iter([("client".to_string(), other)]),
        None => Params::new(),
    };
    for key in WORKER.iter().chain(keys) {
        client.extend(params.remove_entry(*key));
    }
    client
}

/// Reads a system's parameters into its own struct (`deny_unknown_fields` there).
pub(crate) fn params<T: serde::de::DeserializeOwned>(
    system: &'static str,
    params: Params,
) -> Result<T, SystemError> {
    serde_json::from_value(Value::Object(params)).map_err(|e| SystemError::Params {
        system,
        reason: e.to_string(),
    })
}

/// A cluster that votes, from its parameters, and what is for its clients.
pub(crate) fn voting<T: serde::de::DeserializeOwned>(
    system: &'static str,
    mut given: Params,
    nodes: impl Fn(&T) -> usize,
) -> Result<(T, Params), SystemError> {
    let client = client_params(&mut given, &["bug"]);
    let made: T = params(system, given)?;
    odd(system, nodes(&made))?;
    Ok((made, client))
}

/// Where a server of a cluster listens.
pub(crate) fn addr(site: &Site, index: usize, port: u16) -> SocketAddr {
    (site.node_addr(index), port).into()
}

/// Servers `NAME-0`, `NAME-1`, …, all on one port.
pub(crate) fn servers(name: &str, nodes: usize, site: &Site, port: u16) -> Vec<Endpoint> {
    let one = |i| Endpoint {
        name: format!("{name}-{i}"),
        addr: addr(site, i, port),
    };
    (0..nodes).map(one).collect()
}

/// Clusters that vote have an odd number of nodes.
pub(crate) fn odd(system: &'static str, nodes: usize) -> Result<(), SystemError> {
    if matches!(nodes, 1 | 3 | 5 | 7) {
        return Ok(());
    }
    Err(SystemError::Params {
        system,
        reason: format!("nodes = {nodes}: write 1, 3, 5 or 7"),
    })
}

/// Calls `probe` every 50 ms until it answers or the time is over.
pub(crate) async fn until_ready<T, F>(
    system: &'static str,
    within: Duration,
    mut probe: impl FnMut() -> F,
) -> Result<T, SystemError>
where
    F: Future<Output = Result<T, String>>,
{
    let end = tokio::time::Instant::now() + within;
    loop {
        let reason = match tokio::time::timeout_at(end, probe()).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(reason)) => reason,
            Err(_) => "no answer".into(),
        };
        if tokio::time::Instant::now() >= end {
            return Err(SystemError::NotReady {
                system,
                within,
                reason,
            });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn unknown_names_list_the_known() {
        let e = open("redi", Params::new()).err().unwrap().to_string();
        assert!(e.contains("redis") && e.contains("raftlock"), "{e}");
    }

    #[test]
    fn parameters_of_the_client_are_taken_out() {
        let json = r#"{"a":1,"retry_ms":5,"watchdog":false,"client":{"x":2}}"#;
        let mut all: Params = serde_json::from_str(json).unwrap();
        let client = client_params(&mut all, &["retry_ms", "absent"]);
        assert_eq!(
            Value::from(client).to_string(),
            r#"{"retry_ms":5,"watchdog":false,"x":2}"#
        );
        assert_eq!(Value::from(all).to_string(), r#"{"a":1}"#);
    }

    #[test]
    fn every_system_opens_without_parameters_and_refuses_a_typo() {
        for s in SYSTEMS {
            assert_eq!(
                open(s.name, Params::new()).unwrap().facts().name,
                s.name,
                "{}",
                s.name
            );
            let typo = Params::from_iter([("tyop".to_string(), Value::from(1))]);
            assert!(open(s.name, typo).is_err(), "{}", s.name);
        }
    }
}
