//! ZooKeeper. Asked by four-letter words:
//! <https://zookeeper.apache.org/doc/current/zookeeperAdmin.html#sc_zkCommands>

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use fencepost_nemesis::{Fut, ProcId, env::LeaderHint};
use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    ClientInit, Facts, Params, Service, System, SystemError, addr, servers, until_ready, voting,
};
use crate::host::{NodeSpec, Site};

const PORT: u16 = 2181;
const QUORUM_PORT: u16 = 2888;
const ELECTION_PORT: u16 = 3888;
const JAR: &str = "/usr/share/java/zookeeper.jar";
/// The jar names no logger of its own: without this one it says nothing.
const LOGGER: &str = "/usr/share/java/slf4j-simple.jar";
const ASK: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ZooKeeper {
    nodes: usize,
    /// Sessions last between 2 and 20 ticks.
    tick_ms: u64,
    #[serde(skip)]
    client: Params,
}

impl Default for ZooKeeper {
    fn default() -> Self {
        Self {
            nodes: 3,
            tick_ms: 200,
            client: Params::new(),
        }
    }
}

pub(super) fn make(params: Params) -> Result<Box<dyn System>, SystemError> {
    let (made, client) = voting("zookeeper", params, |s: &ZooKeeper| s.nodes)?;
    Ok(Box::new(ZooKeeper { client, ..made }))
}

impl ZooKeeper {
    /// A follower may lag by 2 s and join within 10 s, whatever the tick.
    fn conf(&self, site: &Site, index: usize) -> String {
        let tick = self.tick_ms.max(1);
        let dir = site.node_data_dir(index);
        let server = |i: usize| {
            let ip = site.node_addr(i);
            format!("server.{}={ip}:{QUORUM_PORT}:{ELECTION_PORT}\n", i + 1)
        };
        let servers: String = (0..self.nodes).map(server).collect();
        format!(
            "tickTime={tick}\ninitLimit={}\nsyncLimit={}\ndataDir={dir}\n\
             clientPort={PORT}\nclientPortAddress={}\nmaxClientCnxns=0\n\
             4lw.commands.whitelist=srvr,ruok,mntr\nadmin.enableServer=false\n{servers}",
            (10_000 / tick).max(1),
            (2_000 / tick).max(1),
            site.node_addr(index),
        )
    }
}

#[async_trait]
impl System for ZooKeeper {
    /// A session ends at the first tick after its timeout: late by up to a tick, never early.
    fn facts(&self) -> Facts {
        Facts {
            fence: true,
            fifo: true,
            shared: true,
            min_ttl_ms: 2 * self.tick_ms,
            ..Facts::leased("zookeeper")
        }
    }

    fn nodes(&self, site: &Site) -> Vec<NodeSpec> {
        let node = |i: usize| {
            let mut spec = NodeSpec::new(format!("zookeeper-{i}"), "zookeeper", "java")
                .args([
                    // Three of them start at once, on few cores.
                    "-Xmx256m".to_string(),
                    "-XX:+UseSerialGC".into(),
                    "-XX:TieredStopAtLevel=1".into(),
                    "-Dzookeeper.jmx.log4j.disable=true".into(),
                    // Else a vote that was missed on a busy machine is repeated after up to a minute.
                    "-Dzookeeper.fastleader.maxNotificationInterval=1000".into(),
                    "-cp".into(),
                    format!("{JAR}:{LOGGER}"),
                    "org.apache.zookeeper.server.quorum.QuorumPeerMain".into(),
                    format!("{}/zoo.cfg", site.node_data_dir(i)),
                ])
                .file("zoo.cfg", self.conf(site, i))
                .file("myid", format!("{}\n", i + 1));
            spec.needs = vec![JAR.into()];
            spec
        };
        (0..self.nodes).map(node).collect()
    }

    fn client(&self, site: &Site) -> ClientInit {
        ClientInit {
            name: "zookeeper".into(),
            endpoints: servers("zookeeper", self.nodes, site, PORT),
            params: self.client.clone(),
        }
    }

    fn port(&self, _node: usize) -> Option<u16> {
        Some(PORT)
    }

    async fn join(&self, site: &Site, within: Duration) -> Result<Service, SystemError> {
        let nodes: Vec<SocketAddr> = (0..self.nodes).map(|i| addr(site, i, PORT)).collect();
        let mut version = String::new();
        for node in &nodes {
            version = until_ready("zookeeper", within, || async {
                let text = srvr(*node).await?;
                mode(&text).ok_or_else(|| text.trim().to_string())?;
                Ok(version_in(&text).unwrap_or_default())
            })
            .await?;
        }
        Ok(Service {
            version,
            leader_hint: Some(Arc::new(Control(nodes))),
            ..Service::default()
        })
    }
}

async fn srvr(node: SocketAddr) -> Result<String, String> {
    let ask = async {
        let mut stream = TcpStream::connect(node).await?;
        stream.write_all(b"srvr").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok::<_, std::io::Error>(text)
    };
    match tokio::time::timeout(ASK, ask).await {
        Ok(answer) => answer.map_err(|e| e.to_string()),
        Err(_) => Err(format!("{node} does not answer")),
    }
}

/// `leader`, `follower` or `standalone`; None while there is no quorum.
fn mode(text: &str) -> Option<&str> {
    text.lines().find_map(|l| l.strip_prefix("Mode: "))
}

/// `Zookeeper version: 3.8.0-5a02a05e…, built on …`
fn version_in(text: &str) -> Option<String> {
    let rest = text.split_once("version: ")?.1;
    let end = rest.find(['-', ',', '\n']).unwrap_or(rest.len());
    Some(rest[..end].trim().to_string())
}

struct Control(Vec<SocketAddr>);

impl LeaderHint for Control {
    fn leader(&self) -> Fut<'_, Option<ProcId>> {
        Box::pin(async move {
            let asked = futures_util::future::join_all(self.0.iter().map(|n| srvr(*n))).await;
            let leads = |text: &String| matches!(mode(text), Some("leader" | "standalone"));
            let index = asked.iter().position(|a| a.as_ref().is_ok_and(leads))?;
            Some(ProcId::Node(u32::try_from(index).ok()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn srvr_is_read() {
        let text = "Zookeeper version: 3.9.3-c26634f, built on 2024-10-17\nLatency min/avg/max: 0\n\
                    Mode: leader\nNode count: 5\n";
        assert_eq!(mode(text), Some("leader"));
        assert_eq!(version_in(text).as_deref(), Some("3.9.3"));
        let none = "This ZooKeeper instance is not currently serving requests\n";
        assert_eq!(mode(none), None);
    }
}
