//! etcd. Its JSON gateway is what the harness itself talks to:
//! <https://etcd.io/docs/v3.5/dev-guide/api_grpc_gateway/>

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use fencepost_nemesis::{
    Fut, ProcId,
    env::{LeaderHint, TransferLeader},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ClientInit, Facts, Params, Service, System, SystemError, addr, http, servers, until_ready,
    voting,
};
use crate::host::{NodeSpec, Site};

const PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;
const STATUS: &str = "/v3/maintenance/status";
const ASK: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Etcd {
    nodes: usize,
    heartbeat_ms: u64,
    election_ms: u64,
    #[serde(skip)]
    client: Params,
}

impl Default for Etcd {
    fn default() -> Self {
        Self {
            nodes: 3,
            heartbeat_ms: 100,
            election_ms: 1000,
            client: Params::new(),
        }
    }
}

pub(super) fn make(params: Params) -> Result<Box<dyn System>, SystemError> {
    let (made, client) = voting("etcd", params, |s: &Etcd| s.nodes)?;
    Ok(Box::new(Etcd { client, ..made }))
}

#[async_trait]
impl System for Etcd {
    /// The shortest lease is ⌈1.5 election timeouts⌉ in whole seconds; a lease is revoked at its
    /// end or up to 0.5 s later, never earlier (server/lease/lessor.go).
    fn facts(&self) -> Facts {
        Facts {
            fence: true,
            fifo: true,
            min_ttl_ms: (self.election_ms * 3).div_ceil(2000) * 1000,
            ..Facts::leased("etcd")
        }
    }

    fn nodes(&self, site: &Site) -> Vec<NodeSpec> {
        let peer = |i: usize| format!("http://{}:{PEER_PORT}", site.node_addr(i));
        let member = |i: usize| format!("etcd-{i}={}", peer(i));
        let cluster: Vec<String> = (0..self.nodes).map(member).collect();
        let node = |i: usize| {
            let client = format!("http://{}", addr(site, i, PORT));
            NodeSpec::new(format!("etcd-{i}"), "etcd", "etcd").args([
                format!("--name=etcd-{i}"),
                format!("--data-dir={}/etcd", site.node_data_dir(i)),
                format!("--listen-peer-urls={}", peer(i)),
                format!("--initial-advertise-peer-urls={}", peer(i)),
                format!("--listen-client-urls={client}"),
                format!("--advertise-client-urls={client}"),
                format!("--initial-cluster={}", cluster.join(",")),
                format!("--heartbeat-interval={}", self.heartbeat_ms),
                format!("--election-timeout={}", self.election_ms),
                "--logger=zap".into(),
            ])
        };
        (0..self.nodes).map(node).collect()
    }

    fn client(&self, site: &Site) -> ClientInit {
        ClientInit {
            name: "etcd".into(),
            endpoints: servers("etcd", self.nodes, site, PORT),
            params: self.client.clone(),
        }
    }

    fn port(&self, _node: usize) -> Option<u16> {
        Some(PORT)
    }

    async fn join(&self, site: &Site, within: Duration) -> Result<Service, SystemError> {
        let control = Arc::new(Control(
            (0..self.nodes).map(|i| addr(site, i, PORT)).collect(),
        ));
        let mut version = String::new();
        for node in &control.0 {
            version = until_ready("etcd", within, || async {
                let status = status(*node).await?;
                if number(&status["leader"]) == 0 {
                    return Err("no leader yet".into());
                }
                Ok(status["version"].as_str().unwrap_or_default().to_string())
            })
            .await?;
        }
        Ok(Service {
            version,
            leader_hint: Some(control.clone()),
            transfer_leader: Some(control),
            ..Service::default()
        })
    }
}

async fn status(node: SocketAddr) -> Result<Value, String> {
    post(node, STATUS, json!({})).await
}

async fn post(node: SocketAddr, path: &str, body: Value) -> Result<Value, String> {
    let answer = tokio::time::timeout(ASK, http::json(node, path, Some(&body))).await;
    answer.unwrap_or_else(|_| Err(format!("{node} does not answer")))
}

/// The gateway writes 64-bit numbers as text.
fn number(value: &Value) -> u64 {
    value.as_str().and_then(|s| s.parse().ok()).unwrap_or(0)
}

struct Control(Vec<SocketAddr>);

impl Control {
    /// Member ids by node, and the leader's id by the highest term that a node reports.
    async fn members(&self) -> (Vec<Option<u64>>, u64) {
        let asked = futures_util::future::join_all(self.0.iter().map(|n| status(*n))).await;
        let best = asked
            .iter()
            .flatten()
            .max_by_key(|s| number(&s["raftTerm"]));
        let leader = best.map_or(0, |s| number(&s["leader"]));
        let ids = asked.iter();
        let ids = ids.map(|s| Some(number(&s.as_ref().ok()?["header"]["member_id"])));
        (ids.collect(), leader)
    }

    async fn transfer_to(&self, to: Option<ProcId>) -> Result<(), String> {
        let (ids, leader) = self.members().await;
        let from = ids.iter().position(|id| *id == Some(leader));
        let from = from.ok_or("no node leads now")?;
        let target = match to {
            Some(ProcId::Node(n)) => ids.get(n as usize).copied().flatten(),
            Some(other) => return Err(format!("{other} is no etcd node")),
            None => ids.iter().copied().flatten().find(|id| *id != leader),
        };
        let target = target.ok_or("no node to hand over to answers")?;
        let body = json!({ "targetID": target.to_string() });
        post(self.0[from], "/v3/maintenance/transfer-leadership", body).await?;
        Ok(())
    }
}

impl LeaderHint for Control {
    fn leader(&self) -> Fut<'_, Option<ProcId>> {
        Box::pin(async move {
            let (ids, leader) = self.members().await;
            let index = ids.iter().position(|id| *id == Some(leader))?;
            Some(ProcId::Node(u32::try_from(index).ok()?))
        })
    }
}

impl TransferLeader for Control {
    fn transfer(&self, to: Option<ProcId>) -> Fut<'_, Result<(), String>> {
        Box::pin(self.transfer_to(to))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_shortest_lease_follows_the_election_timeout() {
        let min = |json: &str| {
            let params = serde_json::from_str(json).unwrap();
            make(params).unwrap().facts().min_ttl_ms
        };
        assert_eq!(min("{}"), 2000);
        assert_eq!(min(r#"{"election_ms":500}"#), 1000);
        let even: Params = serde_json::from_str(r#"{"nodes":4}"#).unwrap();
        assert!(make(even).is_err());
    }
}
