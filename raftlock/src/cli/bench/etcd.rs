//! etcd's own lock (v3lock), for comparison: three servers from PATH, their data beside ours, fsync on as always.
//!
//! The few messages are written by hand: api as in etcd's v3lock.proto and rpc.proto.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::cluster::{Processes, free_addr};
use super::load::{Caller, Plan};
use super::stream::{CONNECTIONS, lock_name};

#[derive(Clone, PartialEq, prost::Message)]
struct Header {
    #[prost(uint64, tag = "2")]
    member_id: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Nothing {}

#[derive(Clone, PartialEq, prost::Message)]
struct StatusAnswer {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(string, tag = "2")]
    version: String,
    #[prost(uint64, tag = "4")]
    leader: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Lease {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Leased {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Lock {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Locked {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Unlock {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

async fn unary<Q, A>(channel: &Channel, path: &'static str, ask: Q) -> anyhow::Result<A>
where
    Q: prost::Message + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.context("etcd does not answer")?;
    let codec = ProstCodec::<Q, A>::default();
    let path = PathAndQuery::from_static(path);
    let answer = grpc.unary(tonic::Request::new(ask), path, codec).await?;
    Ok(answer.into_inner())
}

/// Three etcd servers.
pub struct Etcd {
    _servers: Processes,
    /// What the leader says it is.
    pub version: String,
    leader: String,
}

impl Etcd {
    /// Starts them with their data under `dir`.
    pub async fn start(dir: &Path) -> anyhow::Result<Self> {
        let addrs: Vec<(String, String)> = (0..3)
            .map(|_| Ok((free_addr()?, free_addr()?)))
            .collect::<anyhow::Result<_>>()?;
        let member = |(i, (_, peer)): (usize, &(String, String))| format!("n{i}=http://{peer}");
        let cluster: Vec<String> = addrs.iter().enumerate().map(member).collect();
        let mut servers = Processes::default();
        for (i, (client, peer)) in addrs.iter().enumerate() {
            let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
            let mut command = Command::new("etcd");
            command
                .args(["--name", &format!("n{i}"), "--data-dir"])
                .arg(dir.join(format!("etcd-{i}")))
                .args(["--listen-client-urls", &client])
                .args(["--advertise-client-urls", &client])
                .args(["--listen-peer-urls", &peer])
                .args(["--initial-advertise-peer-urls", &peer])
                .args(["--initial-cluster", &cluster.join(",")])
                .args(["--log-level", "error"])
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            servers.spawn(&mut command).context("is etcd installed?")?;
        }
        let urls: Vec<String> = addrs
            .iter()
            .map(|(client, _)| format!("http://{client}"))
            .collect();
        let (leader, version) = leader(&urls).await?;
        Ok(Etcd {
            _servers: servers,
            version,
            leader,
        })
    }

    /// Clients at the leader, which saves etcd the way from a follower, on as many connections and leases as ours.
    pub async fn callers(&self, clients: usize, plan: Plan) -> anyhow::Result<Vec<EtcdCaller>> {
        let (mut channels, mut leases, mut out) = (Vec::new(), Vec::new(), Vec::new());
        let connections = plan.connections.among(clients, 3 * CONNECTIONS);
        let shared = plan.connections.per_session(plan.work);
        for number in 0..clients {
            if channels.len() < connections {
                channels.push(
                    Endpoint::from_shared(self.leader.clone())?
                        .tcp_nodelay(true)
                        .connect()
                        .await?,
                );
            }
            let channel: Channel = channels[number % connections].clone();
            if number.is_multiple_of(shared) {
                let leased: Leased = unary(
                    &channel,
                    "/etcdserverpb.Lease/LeaseGrant",
                    Lease { ttl: 600 },
                )
                .await?;
                leases.push(leased.id);
            }
            out.push(EtcdCaller {
                channel,
                lease: leases[number / shared],
                name: lock_name(plan.work, number).into_bytes(),
                key: Vec::new(),
            });
        }
        Ok(out)
    }
}

async fn leader(urls: &[String]) -> anyhow::Result<(String, String)> {
    for _ in 0..200 {
        for url in urls {
            let asked = async {
                let channel = Endpoint::from_shared(url.clone())?.connect().await?;
                unary::<_, StatusAnswer>(&channel, "/etcdserverpb.Maintenance/Status", Nothing {})
                    .await
            };
            if let Ok(status) = asked.await
                && status.leader != 0
                && status
                    .header
                    .is_some_and(|header| header.member_id == status.leader)
            {
                return Ok((url.clone(), status.version));
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("the etcd servers elected no leader within 20 s")
}

/// One client.
pub struct EtcdCaller {
    channel: Channel,
    lease: i64,
    name: Vec<u8>,
    key: Vec<u8>,
}

impl Caller for EtcdCaller {
    async fn acquire(&mut self) -> anyhow::Result<()> {
        let ask = Lock {
            name: self.name.clone(),
            lease: self.lease,
        };
        let locked: Locked = unary(&self.channel, "/v3lockpb.Lock/Lock", ask).await?;
        self.key = locked.key;
        Ok(())
    }

    async fn release(&mut self) -> anyhow::Result<()> {
        let ask = Unlock {
            key: std::mem::take(&mut self.key),
        };
        let _: Nothing = unary(&self.channel, "/v3lockpb.Lock/Unlock", ask).await?;
        Ok(())
    }
}
