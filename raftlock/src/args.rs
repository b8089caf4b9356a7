//! Command-line arguments of a node, to be flattened into any clap parser.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::Config;
use crate::config::ConfigFile;

/// Arguments of `raftlock serve`. Each goes before the same key of the configuration file.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ServeArgs {
    /// Configuration, TOML; holds what has no flag: namespaces, bearer tokens, certificates, some limits
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Address for clients, for example 127.0.0.1:7400
    #[arg(long)]
    pub listen: Option<SocketAddr>,
    /// Directory of this node's state
    #[arg(long)]
    pub data: Option<PathBuf>,
    /// This node's number, from 1 [default: 1]
    #[arg(long)]
    pub id: Option<u64>,
    /// All replicas with their peer addresses, this one too: 1=HOST:PORT,2=HOST:PORT,3=HOST:PORT
    #[arg(long, value_delimiter = ',', value_parser = parse_peer)]
    pub peers: Vec<(u64, String)>,
    /// Name of the cluster; replicas of another name are refused [default: raftlock]
    #[arg(long)]
    pub cluster: Option<String>,
    /// Base URL under which clients reach this node [default: http://LISTEN, with [tls] https://LISTEN]
    #[arg(long)]
    pub client_url: Option<String>,
    /// Heartbeat interval between replicas, ms; an election begins 8 to 10 of them after the last one heard [default: 80]
    #[arg(long)]
    pub heartbeat_ms: Option<u64>,
    /// A group takes a snapshot after so many KiB of its log, which the disk must have room for [default: 32768]
    #[arg(long)]
    pub snapshot_kb: Option<u32>,
    /// Groups that share the name space [default: 1]
    #[arg(long)]
    pub groups: Option<u32>,
    /// Shortest session TTL granted, ms [default: 5000]
    #[arg(long)]
    pub min_ttl_ms: Option<u64>,
    /// Longest session TTL granted, ms [default: 60000]
    #[arg(long)]
    pub max_ttl_ms: Option<u64>,
    /// How long a lock is kept back after its holder failed, ms [default: 0]
    #[arg(long)]
    pub lock_delay_ms: Option<u64>,
    /// Waiters for one lock before more are refused [default: 500]
    #[arg(long)]
    pub max_waiters: Option<u32>,
    /// Listen beyond loopback without authentication: everyone who reaches the ports may do everything
    #[arg(long)]
    pub trust_network: bool,
    /// Answer before the log is on disk: loses grants at a power cut
    #[arg(long)]
    pub unsafe_no_fsync: bool,
}

/// Shortest TTL that a node grants unless told otherwise: shorter ones make a pause of a client a lost lock, and keepalives
/// most of the load.
const MIN_TTL: Duration = Duration::from_secs(5);

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

impl TryFrom<ServeArgs> for Config {
    type Error = String;

    /// Flags over file over defaults.
    fn try_from(args: ServeArgs) -> Result<Self, String> {
        let file = match &args.config {
            Some(path) => ConfigFile::read(path)?,
            None => ConfigFile::default(),
        };
        let listen = args.listen.or(file.listen);
        let listen = listen.ok_or("where to listen is not said: --listen 127.0.0.1:7400")?;
        let data = args.data.or(file.data);
        let data = data.ok_or("where to keep the state is not said: --data DIR")?;
        let mut peers = args.peers;
        if peers.is_empty() {
            let one = |(id, addr): (&String, &String)| parse_peer(&format!("{id}={addr}"));
            peers = file.peers.iter().map(one).collect::<Result<_, _>>()?;
        }
        let mut named = BTreeSet::new();
        if let Some((id, _)) = peers.iter().find(|(id, _)| !named.insert(*id)) {
            return Err(format!("--peers names replica {id} twice"));
        }
        let plain = Config::single(listen, data);
        let ms = |flag: Option<u64>, said: Option<u64>, own| {
            flag.or(said).map_or(own, Duration::from_millis)
        };
        let min_ttl = ms(args.min_ttl_ms, file.min_ttl_ms, MIN_TTL);
        let max_ttl = ms(args.max_ttl_ms, file.max_ttl_ms, plain.max_ttl);
        let default_ttl = plain.default_ttl.min(max_ttl).max(min_ttl);
        let heartbeat = ms(args.heartbeat_ms, file.heartbeat_ms, plain.heartbeat);
        Ok(Config {
            id: args.id.or(file.id).unwrap_or(plain.id),
            peers: peers.into_iter().collect(),
            cluster: args.cluster.or(file.cluster).unwrap_or(plain.cluster),
            client_url: args.client_url.or(file.client_url).unwrap_or_default(),
            heartbeat: heartbeat.max(Duration::from_millis(10)),
            snapshot_bytes: (args.snapshot_kb.or(file.snapshot_kb))
                .map_or(plain.snapshot_bytes, |kb| kb as usize * 1024),
            groups: args.groups.or(file.groups).unwrap_or(plain.groups),
            min_ttl,
            max_ttl,
            default_ttl: ms(None, file.default_ttl_ms, default_ttl),
            lock_delay: ms(args.lock_delay_ms, file.lock_delay_ms, plain.lock_delay),
            max_waiters: args
                .max_waiters
                .or(file.max_waiters)
                .unwrap_or(plain.max_waiters),
            max_sessions: file.max_sessions.unwrap_or(plain.max_sessions),
            slow_reader: ms(None, file.slow_reader_ms, plain.slow_reader),
            max_connections: file.max_connections.unwrap_or(plain.max_connections),
            sync: !args.unsafe_no_fsync,
            namespaces: file.namespaces,
            admin_tokens: file.admin_tokens,
            tls: file.tls,
            peer_tls: file.peer_tls,
            trust_network: args.trust_network || file.trust_network,
            listen: plain.listen,
            data: plain.data,
            ..Config::single(listen, PathBuf::new())
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn from_file(text: &str) -> Result<Config, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.toml");
        std::fs::write(&path, text).unwrap();
        let config = Some(path);
        Config::try_from(ServeArgs {
            config,
            ..ServeArgs::default()
        })
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_in_one_line() {
        let why = from_file("id = 1\n  lisen = 3\n").unwrap_err();
        assert!(
            why.contains("node.toml:2:3: unknown field `lisen`"),
            "{why}"
        );
        assert_eq!(why.lines().count(), 1, "{why}");
    }

    #[test]
    fn sessions_live_for_five_seconds_at_least_unless_it_is_said_otherwise() {
        let place = "listen = \"127.0.0.1:1\"\ndata = \"d\"\n";
        let namespace = "[namespaces.a]\nmin_ttl_ms = 7000\n[namespaces.b]\nmin_ttl_ms = 200\n";
        let granted = |text: &str, namespace: &str| {
            let config = from_file(&format!("{place}{text}")).unwrap();
            config.limits(namespace).unwrap().grant_ttl(Some(1))
        };
        assert_eq!(granted("", "a"), 5_000);
        assert_eq!(granted("min_ttl_ms = 300\n", "a"), 300);
        assert_eq!(
            (granted(namespace, "a"), granted(namespace, "b")),
            (7_000, 200)
        );
    }

    #[test]
    fn a_replica_is_named_once() {
        let peers = ["1=a:1", "2=b:1", "2=c:1"].map(|peer| parse_peer(peer).unwrap());
        let args = ServeArgs {
            listen: Some("127.0.0.1:1".parse().unwrap()),
            data: Some(PathBuf::from("d")),
            peers: peers.into(),
            ..ServeArgs::default()
        };
        let why = Config::try_from(args).unwrap_err();
        assert!(why.contains("names replica 2 twice"), "{why}");
    }

    #[test]
    fn flags_go_before_the_file_and_the_file_before_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let (path, token) = (dir.path().join("node.toml"), dir.path().join("token"));
        std::fs::write(&token, "0123456789abcdef\n").unwrap();
        let text = format!(
            "listen = \"127.0.0.1:7400\"\ndata = \"/var/lib/raftlock\"\nid = 2\ngroups = 4\n\
             [peers]\n1 = \"a:1\"\n2 = \"b:1\"\n3 = \"c:1\"\n\
             [namespaces.orders]\nsafety = \"correctness\"\nfenced_resource = \"table orders\"\n\
             check = \"fence <= $1\"\nops_per_s = 100\ntoken_files = [{token:?}]\n"
        );
        std::fs::write(&path, text).unwrap();
        let args = ServeArgs {
            config: Some(path.clone()),
            groups: Some(8),
            ..ServeArgs::default()
        };
        let config = Config::try_from(args).unwrap();
        assert_eq!((config.id, config.groups, config.peers.len()), (2, 8, 3));
        assert_eq!(config.max_waiters, 500);
        assert_eq!(config.namespaces["orders"].tokens, ["0123456789abcdef"]);
        assert_eq!(config.limits("orders").unwrap().ops_per_s, Some(100));
        std::fs::write(&path, "lisen = 3\n").unwrap();
        let misspelt = Config::try_from(ServeArgs {
            config: Some(path),
            ..ServeArgs::default()
        });
        assert!(misspelt.unwrap_err().contains("lisen"));
        assert!(
            Config::try_from(ServeArgs::default())
                .unwrap_err()
                .contains("--listen")
        );
    }
}
