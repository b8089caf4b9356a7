//! Our own lock service. The servers are this very program: `fencepost node raftlock`.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use fencepost_nemesis::{
    Fut, ProcId,
    env::{LeaderHint, TransferLeader},
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    ClientInit, Facts, Params, Service, System, SystemError, addr, http, servers, until_ready,
    voting,
};
use crate::host::{NodeSpec, Site};

const PORT: u16 = 7420;
const PEER_PORT: u16 = 7421;
const ASK: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Raftlock {
    nodes: usize,
    /// Raft groups that share the name space.
    groups: u32,
    lock_delay_ms: u64,
    /// Of its log, after which a group takes a snapshot.
    snapshot_kb: Option<u32>,
    #[serde(skip)]
    client: Params,
}

impl Default for Raftlock {
    fn default() -> Self {
        Self {
            nodes: 1,
            groups: 1,
            lock_delay_ms: 0,
            snapshot_kb: None,
            client: Params::new(),
        }
    }
}

pub(super) fn make(params: Params) -> Result<Box<dyn System>, SystemError> {
    let (made, client) = voting("raftlock", params, |s: &Raftlock| s.nodes)?;
    Ok(Box::new(Raftlock { client, ..made }))
}

#[async_trait]
impl System for Raftlock {
    fn facts(&self) -> Facts {
        Facts {
            fence: true,
            fifo: true,
            shared: true,
            min_ttl_ms: 100,
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
                format!("--listen={}", addr(site, i, PORT)),
                format!("--data={}", site.node_data_dir(i)),
                format!("--id={}", i + 1),
                format!("--groups={}", self.groups),
                format!("--lock-delay-ms={}", self.lock_delay_ms),
                "--min-ttl-ms=100".into(),
                // Nobody else reaches the run's own network.
                "--trust-network".into(),
            ]);
            let spec = match self.snapshot_kb {
                Some(kb) => spec.args([format!("--snapshot-kb={kb}")]),
                None => spec,
            };
            match self.nodes {
                1 => spec,
                _ => spec.args([format!("--peers={}", peers.join(","))]),
            }
        };
        (0..self.nodes).map(node).collect()
    }

    fn client(&self, site: &Site) -> ClientInit {
        ClientInit {
            name: "raftlock".into(),
            endpoints: servers("raftlock", self.nodes, site, PORT),
            params: self.client.clone(),
        }
    }

    fn port(&self, node: usize) -> Option<u16> {
        (node < self.nodes).then_some(PORT)
    }

    async fn join(&self, site: &Site, within: Duration) -> Result<Service, SystemError> {
        let control = Arc::new(Control(
            (0..self.nodes).map(|i| addr(site, i, PORT)).collect(),
        ));
        let mut version = String::new();
        for node in &control.0 {
            version = until_ready("raftlock", within, || led(*node)).await?;
        }
        Ok(Service {
            version,
            leader_hint: Some(control.clone()),
            transfer_leader: (self.nodes > 1).then(|| control as Arc<dyn TransferLeader>),
            ..Service::default()
        })
    }
}

/// The version of a node whose groups all have a leader.
async fn led(node: SocketAddr) -> Result<String, String> {
    let status = match status(node).await {
        // Before it had a status, a node that answered was ready.
        Err(e) if e.contains("404") => bounded(node, http::json(node, "/healthz", None)).await?,
        other => other?,
    };
    if leaders(&status).contains(&None) {
        return Err("a group has no leader yet".into());
    }
    if status["map"]["version"] == 0 {
        return Err("it does not know the bucket map yet".into());
    }
    let said = status["version"].as_str();
    Ok(said.unwrap_or(env!("CARGO_PKG_VERSION")).to_string())
}

async fn status(node: SocketAddr) -> Result<Value, String> {
    bounded(node, http::json(node, "/v1/status", None)).await
}

async fn bounded(
    node: SocketAddr,
    ask: impl Future<Output = Result<Value, String>>,
) -> Result<Value, String> {
    let answer = tokio::time::timeout(ASK, ask).await;
    answer.unwrap_or_else(|_| Err(format!("{node} does not answer")))
}

/// The leader of each group as a node sees it, by replica number.
fn leaders(status: &Value) -> Vec<Option<u64>> {
    let groups = status["groups"].as_array().map(Vec::as_slice);
    let leader = |g: &Value| g["leader"].as_u64().filter(|id| *id > 0);
    groups.unwrap_or_default().iter().map(leader).collect()
}

/// Leadership of the first group; a transfer moves all that a node leads.
struct Control(Vec<SocketAddr>);

impl Control {
    /// By the highest term of the first group that any node reports with a leader; one that is cut off knows none.
    async fn leader_index(&self) -> Option<usize> {
        let asked = futures_util::future::join_all(self.0.iter().map(|n| status(*n))).await;
        let known = asked.iter().flatten().filter_map(|s| {
            let leader = leaders(s).first().copied().flatten()?;
            Some((s["groups"][0]["term"].as_u64(), leader))
        });
        let (_, id) = known.max()?;
        let index = usize::try_from(id).ok()?.checked_sub(1)?;
        (index < self.0.len()).then_some(index)
    }
}

impl LeaderHint for Control {
    fn leader(&self) -> Fut<'_, Option<ProcId>> {
        Box::pin(async move {
            let index = self.leader_index().await?;
            Some(ProcId::Node(u32::try_from(index).ok()?))
        })
    }
}

impl TransferLeader for Control {
    /// The node chooses to whom.
    fn transfer(&self, _to: Option<ProcId>) -> Fut<'_, Result<(), String>> {
        Box::pin(async move {
            let leader = self.leader_index().await.ok_or("no node leads now")?;
            let node = self.0[leader];
            let body = Value::Object(Params::new());
            let ask = http::json(node, "/v1/admin/transfer-leader", Some(&body));
            bounded(node, ask).await.map(|_| ())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_group_without_a_leader_is_seen() {
        let status = json!({ "groups": [{ "leader": 2 }, { "leader": null }, { "leader": 0 }] });
        assert_eq!(leaders(&status), [Some(2), None, None]);
        assert!(leaders(&json!({})).is_empty());
    }
}
