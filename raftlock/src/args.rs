//! Command-line arguments of a node, to be flattened into any clap parser.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::Config;

/// Arguments of `raftlock serve`.
#[derive(Debug, Clone, clap::Args)]
pub struct ServeArgs {
    /// Address for clients, for example 127.0.0.1:7400
    #[arg(long)]
    pub listen: SocketAddr,
    /// Directory of this node's state
    #[arg(long)]
    pub data: PathBuf,
    /// This node's number, from 1
    #[arg(long, default_value_t = 1)]
    pub id: u64,
    /// All replicas with their peer addresses, this one too: 1=HOST:PORT,2=HOST:PORT,3=HOST:PORT
    #[arg(long, value_delimiter = ',', value_parser = parse_peer)]
    pub peers: Vec<(u64, String)>,
    /// Name of the cluster; replicas of another name are refused
    #[arg(long, default_value = "raftlock")]
    pub cluster: String,
    /// Base URL under which clients reach this node [default: http://LISTEN]
    #[arg(long, default_value = "")]
    pub client_url: String,
    /// Heartbeat interval between replicas, ms; an election begins 8 to 10 of them after the last one heard
    #[arg(long, default_value_t = 80)]
    pub heartbeat_ms: u64,
    /// Groups that share the name space
    #[arg(long, default_value_t = 1)]
    pub groups: u32,
    /// Shortest session TTL granted, ms
    #[arg(long, default_value_t = 100)]
    pub min_ttl_ms: u64,
    /// Longest session TTL granted, ms
    #[arg(long, default_value_t = 60_000)]
    pub max_ttl_ms: u64,
    /// How long a lock is kept back after its holder failed, ms
    #[arg(long, default_value_t = 0)]
    pub lock_delay_ms: u64,
    /// Waiters for one lock before more are refused
    #[arg(long, default_value_t = 500)]
    pub max_waiters: u32,
    /// Answer before the log is on disk: loses grants at a power cut
    #[arg(long)]
    pub unsafe_no_fsync: bool,
}

fn parse_peer(text: &str) -> Result<(u64, String), String> {
    let (id, addr) = text.split_once('=').ok_or("write it as ID=HOST:PORT")?;
    let id = id
        .parse()
        .map_err(|_| format!("{id:?} is no replica number"))?;
    if !addr.contains(':') {
        return Err(format!("{addr:?} has no port"));
    }
    Ok((id, addr.to_owned()))
}

impl From<ServeArgs> for Config {
    fn from(args: ServeArgs) -> Self {
        Config {
            id: args.id,
            peers: args.peers.into_iter().collect(),
            cluster: args.cluster,
            client_url: args.client_url,
            heartbeat: Duration::from_millis(args.heartbeat_ms.max(10)),
            groups: args.groups,
            min_ttl: Duration::from_millis(args.min_ttl_ms),
            max_ttl: Duration::from_millis(args.max_ttl_ms),
            lock_delay: Duration::from_millis(args.lock_delay_ms),
            max_waiters: args.max_waiters,
            sync: !args.unsafe_no_fsync,
            ..Config::single(args.listen, args.data)
        }
    }
}
