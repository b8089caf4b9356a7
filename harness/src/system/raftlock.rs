//! Our own lock service. The servers are this very program: `fencepost node raftlock`.

use std::{net::SocketAddr, time::Duration};

use async_trait::async_trait;
use serde::Deserialize;

use super::{
    ClientInit, Endpoint, Facts, Params, Service, System, SystemError, client_params, http,
    until_ready,
};
use crate::host::{NodeSpec, Site};

const PORT: u16 = 7420;
const PEER_PORT: u16 = 7421;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Raftlock {
    nodes: usize,
    /// Raft groups that share the name space.
    groups: u32,
    lock_delay_ms: u64,
    #[serde(skip)]
    client: Params,
}

impl Default for Raftlock {
    fn default() -> Self {
        Self {
            nodes: 1,
            groups: 1,
            lock_delay_ms: 0,
            client: Params::new(),
        }
    }
}

pub(super) fn make(mut params: Params) -> Result<Box<dyn System>, SystemError> {
    let client = client_params(&mut params, &["bug"]);
    let made: Raftlock = super::params("raftlock", params)?;
    super::odd("raftlock", made.nodes)?;
    Ok(Box::new(Raftlock { client, ..made }))
}

fn addr(site: &Site, index: usize) -> SocketAddr {
    (site.node_addr(index), PORT).into()
}

#[async_trait]
impl System for Raftlock {
    fn facts(&self) -> Facts {
        Facts {
            fence: true,
            fifo: true,
            lock_delay_ms: self.lock_delay_ms,
            ..Facts::leased("raftlock")
        }
    }

    fn nodes(&self, site: &Site) -> Vec<NodeSpec> {
        let peer = |i: usize| format!("{}={}:{PEER_PORT}", i + 1, site.node_addr(i));
        let peers: Vec<String> = (0..self.nodes).map(peer).collect();
        let node = |i: usize| {
            let spec = NodeSpec::new(format!("raftlock-{i}"), "raftlock", "fencepost").args([
                "node".to_string(),
                "raftlock".into(),
                format!("--listen={}", addr(site, i)),
                format!("--data={}", site.node_data_dir(i)),
                format!("--id={}", i + 1),
                format!("--groups={}", self.groups),
                format!("--lock-delay-ms={}", self.lock_delay_ms),
            ]);
            match self.nodes {
                1 => spec,
                _ => spec.args([format!("--peers={}", peers.join(","))]),
            }
        };
        (0..self.nodes).map(node).collect()
    }

    fn client(&self, site: &Site) -> ClientInit {
        let endpoint = |i| Endpoint {
            name: format!("raftlock-{i}"),
            addr: addr(site, i),
        };
        ClientInit {
            name: "raftlock".into(),
            endpoints: (0..self.nodes).map(endpoint).collect(),
            params: self.client.clone(),
        }
    }

    fn port(&self, _node: usize) -> Option<u16> {
        Some(PORT)
    }

    async fn join(&self, site: &Site, within: Duration) -> Result<Service, SystemError> {
        let mut version = String::new();
        for i in 0..self.nodes {
            let addr = addr(site, i);
            let ask = || http::json(addr, "/healthz", None);
            let health = until_ready("raftlock", within, ask).await?;
            // The server is this program: where it does not say its version, ours is it.
            let said = health["version"].as_str();
            version = said.unwrap_or(env!("CARGO_PKG_VERSION")).into();
        }
        Ok(Service {
            version,
            ..Service::default()
        })
    }
}
