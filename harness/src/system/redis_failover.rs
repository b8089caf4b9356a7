//! A Redis primary with two replicas, watched by three sentinels with a quorum of two.
//! `node:0` is the first primary, `node:1` and `node:2` its replicas, `node:3` to `node:5` the sentinels.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use fencepost_nemesis::{
    Fut, ProcId,
    env::{LeaderHint, Promote, TransferLeader},
};
use serde::Deserialize;

use super::{
    ClientInit, Endpoint, Facts, Params, Service, System, SystemError, client_params,
    redis::{self, Aof, Clock, PORT},
    resp::{self, Reply},
    until_ready,
};
use crate::host::{NodeSpec, Site};

const SENTINEL_PORT: u16 = 26379;
const SERVERS: usize = 3;
const SENTINELS: usize = 3;
const MASTER: &str = "mymaster";
const QUORUM: &str = "2";
/// By its own pace a sentinel needs up to twenty seconds to make a replica of a primary that comes back: it asks each
/// ten seconds what a server is, and lets it be wrong for four greetings of two seconds.
const PACE: [&str; 6] = [
    "SENTINEL",
    "DEBUG",
    "info-period",
    "1000",
    "publish-period",
    "500",
];
/// How long one question may take.
const ASK: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Failover {
    aof: Aof,
    /// How long a primary must be silent until a sentinel thinks it is down.
    down_after_ms: u64,
    failover_timeout_ms: u64,
    #[serde(skip)]
    client: Params,
}

impl Default for Failover {
    fn default() -> Self {
        Self {
            aof: Aof::Off,
            down_after_ms: 1000,
            failover_timeout_ms: 6000,
            client: Params::new(),
        }
    }
}

pub(super) fn make(mut params: Params) -> Result<Box<dyn System>, SystemError> {
    let client = client_params(&mut params, &["wait_replicas", "retry_ms", "bug"]);
    let made: Failover = super::params("redis-failover", params)?;
    Ok(Box::new(Failover { client, ..made }))
}

impl Failover {
    fn sentinel(&self, site: &Site, index: usize) -> NodeSpec {
        let dir = site.node_data_dir(index);
        let conf = format!(
            "bind {addr}\nport {SENTINEL_PORT}\nprotected-mode no\ndir {dir}\n\
             sentinel monitor {MASTER} {primary} {PORT} {QUORUM}\n\
             sentinel down-after-milliseconds {MASTER} {}\n\
             sentinel failover-timeout {MASTER} {}\n\
             sentinel parallel-syncs {MASTER} 2\n",
            self.down_after_ms,
            self.failover_timeout_ms,
            addr = site.node_addr(index),
            primary = site.node_addr(0),
        );
        let mut spec = NodeSpec::new(
            format!("sentinel-{}", index - SERVERS),
            "redis",
            "redis-server",
        )
        .args([format!("{dir}/sentinel.conf"), "--sentinel".into()])
        .file("sentinel.conf", conf);
        spec.role = "sentinel".into();
        spec
    }
}

fn sentinels(site: &Site) -> Vec<SocketAddr> {
    let addr = |i| (site.node_addr(SERVERS + i), SENTINEL_PORT).into();
    (0..SENTINELS).map(addr).collect()
}

#[async_trait]
impl System for Failover {
    fn facts(&self) -> Facts {
        Facts {
            fence: true,
            durable: self.aof == Aof::Always,
            asynchronous: true,
            ..Facts::leased("redis-failover")
        }
    }

    fn nodes(&self, site: &Site) -> Vec<NodeSpec> {
        let server = |i: usize| {
            // Else a primary lets a replica wait for five seconds, in case that another one comes.
            let spec = redis::server(site, i, self.aof).args(["--repl-diskless-sync-delay", "0"]);
            match i {
                0 => spec,
                _ => spec.args([
                    "--replicaof".to_string(),
                    site.node_addr(0).to_string(),
                    PORT.to_string(),
                ]),
            }
        };
        let sentinel = |i| self.sentinel(site, SERVERS + i);
        (0..SERVERS)
            .map(server)
            .chain((0..SENTINELS).map(sentinel))
            .collect()
    }

    fn client(&self, site: &Site) -> ClientInit {
        let sentinel = |(i, addr)| Endpoint {
            name: format!("sentinel-{i}"),
            addr,
        };
        let mut endpoints = redis::endpoints(site, SERVERS);
        endpoints.extend(sentinels(site).into_iter().enumerate().map(sentinel));
        let mut params = self.client.clone();
        params.insert("master".into(), MASTER.into());
        ClientInit {
            name: "redis-failover".into(),
            endpoints,
            params,
        }
    }

    fn port(&self, node: usize) -> Option<u16> {
        Some(if node < SERVERS { PORT } else { SENTINEL_PORT })
    }

    async fn join(&self, site: &Site, within: Duration) -> Result<Service, SystemError> {
        let mut version = String::new();
        for i in 0..SERVERS {
            version = redis::ready("redis-failover", redis::addr(site, i), within).await?;
        }
        let primary = redis::addr(site, 0);
        until_ready("redis-failover", within, || replicas_online(primary)).await?;
        for sentinel in sentinels(site) {
            // A version that does not know the command keeps its own pace.
            let _ = ask(sentinel, &PACE).await;
            until_ready("redis-failover", within, || knows_all(sentinel)).await?;
        }
        let control = Arc::new(Control {
            servers: (0..SERVERS).map(|i| redis::addr(site, i)).collect(),
            sentinels: sentinels(site),
            down_after_ms: self.down_after_ms.to_string(),
            failover_timeout_ms: self.failover_timeout_ms.to_string(),
        });
        let servers = (0..SERVERS).map(|i| site.node_addr(i)).collect();
        Ok(Service {
            version,
            leader_hint: Some(control.clone()),
            transfer_leader: Some(control.clone()),
            promote: Some(control),
            server_clock: Some(Arc::new(Clock(servers))),
        })
    }
}

async fn replicas_online(primary: SocketAddr) -> Result<(), String> {
    let info = resp::ask(primary, &["INFO", "replication"]).await?;
    let online = info
        .text()
        .unwrap_or_default()
        .matches("state=online")
        .count();
    if online == SERVERS - 1 {
        return Ok(());
    }
    Err(format!("{online} of {} replicas are online", SERVERS - 1))
}

async fn knows_all(sentinel: SocketAddr) -> Result<(), String> {
    let master = resp::ask(sentinel, &["SENTINEL", "MASTER", MASTER]).await?;
    let field = |name: &str| {
        let words: Vec<_> = master.list().iter().filter_map(Reply::text).collect();
        let pairs = words.chunks_exact(2);
        pairs
            .clone()
            .find(|p| p[0] == name)
            .map(|p| p[1].to_string())
    };
    let seen = (field("num-slaves"), field("num-other-sentinels"));
    let wanted = ((SERVERS - 1).to_string(), (SENTINELS - 1).to_string());
    if seen == (Some(wanted.0), Some(wanted.1)) {
        return Ok(());
    }
    Err(format!(
        "sentinel {sentinel} knows of {seen:?} replicas and sentinels"
    ))
}

/// Sentinel's commands, and what an operator does without it.
struct Control {
    servers: Vec<SocketAddr>,
    sentinels: Vec<SocketAddr>,
    down_after_ms: String,
    failover_timeout_ms: String,
}

async fn ask(addr: SocketAddr, command: &[&str]) -> Result<Reply, String> {
    let answer = tokio::time::timeout(ASK, resp::ask(addr, command)).await;
    answer.unwrap_or_else(|_| Err(format!("{addr} does not answer")))
}

impl Control {
    /// The primary as the first sentinel that answers names it.
    async fn primary(&self) -> Option<usize> {
        for sentinel in &self.sentinels {
            let named = ask(*sentinel, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]).await;
            let Ok(Reply::List(words)) = named else {
                continue;
            };
            let ip = words.first()?.text()?.parse().ok()?;
            return self
                .servers
                .iter()
                .position(|s| *s == SocketAddr::new(ip, PORT));
        }
        None
    }

    /// A server by its id; else one that answers and is not the primary.
    async fn replica(&self, to: Option<ProcId>) -> Result<SocketAddr, String> {
        if let Some(id) = to {
            let ProcId::Node(n) = id else {
                return Err(format!("{id} is no server"));
            };
            let server = self.servers.get(n as usize).copied();
            return server.ok_or_else(|| format!("{id} is no Redis server"));
        }
        let primary = self.primary().await;
        for (i, server) in self.servers.iter().enumerate() {
            if Some(i) != primary && ask(*server, &["PING"]).await.is_ok() {
                return Ok(*server);
            }
        }
        Err("no replica answers".into())
    }

    async fn follow(&self, sentinel: SocketAddr, ip: &str) -> Result<(), String> {
        let port = PORT.to_string();
        let set = |name, value| ["SENTINEL", "SET", MASTER, name, value];
        // Unknown already, where an earlier attempt was cut short.
        let _ = ask(sentinel, &["SENTINEL", "REMOVE", MASTER]).await;
        ask(
            sentinel,
            &["SENTINEL", "MONITOR", MASTER, ip, &port, QUORUM],
        )
        .await?;
        ask(
            sentinel,
            &set("down-after-milliseconds", &self.down_after_ms),
        )
        .await?;
        ask(
            sentinel,
            &set("failover-timeout", &self.failover_timeout_ms),
        )
        .await?;
        Ok(())
    }
}

impl LeaderHint for Control {
    fn leader(&self) -> Fut<'_, Option<ProcId>> {
        Box::pin(async move {
            let index = self.primary().await?;
            let role = ask(self.servers[index], &["ROLE"]).await.ok()?;
            let leads = role.list().first().and_then(Reply::text) == Some("master");
            leads.then_some(ProcId::Node(u32::try_from(index).ok()?))
        })
    }
}

impl TransferLeader for Control {
    /// Sentinel chooses the replica; it cannot be told which.
    fn transfer(&self, _to: Option<ProcId>) -> Fut<'_, Result<(), String>> {
        Box::pin(async move {
            let mut last = String::from("there is no sentinel");
            for sentinel in &self.sentinels {
                match ask(*sentinel, &["SENTINEL", "FAILOVER", MASTER]).await {
                    Ok(_) => return Ok(()),
                    Err(reason) => last = reason,
                }
            }
            Err(last)
        })
    }
}

impl Promote for Control {
    /// As an operator does it: the replica becomes a primary, the other one follows it, the
    /// sentinels are told. The old primary is not asked.
    fn promote(&self, to: Option<ProcId>) -> Fut<'_, Result<(), String>> {
        Box::pin(async move {
            let old = self.primary().await.map(|i| self.servers[i]);
            let new = self.replica(to).await?;
            let (ip, port) = (new.ip().to_string(), PORT.to_string());
            ask(new, &["REPLICAOF", "NO", "ONE"]).await?;
            for other in self
                .servers
                .iter()
                .filter(|s| **s != new && Some(**s) != old)
            {
                let _ = ask(*other, &["REPLICAOF", &ip, &port]).await;
            }
            let mut told = 0;
            for sentinel in &self.sentinels {
                told += usize::from(self.follow(*sentinel, &ip).await.is_ok());
            }
            if told >= 2 {
                return Ok(());
            }
            Err(format!(
                "{told} of {} sentinels could be told",
                self.sentinels.len()
            ))
        })
    }
}
