//! How a node is set up.

mod file;
mod namespace;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub use file::{ClientTls, ConfigFile, PeerTls};
pub use namespace::{Limits, Namespace, Safety};

/// Shortest bearer token taken: a guessable one is no secret.
const TOKEN_MIN: usize = 16;
/// An election waits for several; with a longer one a dead leader would be missed for minutes.
const HEARTBEAT_MAX: Duration = Duration::from_secs(10);

/// A node's configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// This node's number, unique in the cluster, from 1.
    pub id: u64,
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Directory of this node's state; created if missing.
    pub data: PathBuf,
    /// Peer address of every replica, this one too; empty for a lone node.
    pub peers: BTreeMap<u64, String>,
    /// Name of the cluster; replicas of another name are refused.
    pub cluster: String,
    /// Base URL under which clients reach this node; made from `listen` if empty.
    pub client_url: String,
    /// Heartbeat interval between replicas. An election begins 8 to 10 of them after the last one heard.
    pub heartbeat: Duration,
    /// Bytes of log after which a group takes a snapshot.
    pub snapshot_bytes: usize,
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
    /// Sessions of a namespace in one group before more are refused.
    pub max_sessions: u32,
    /// A stream whose client has not read for so long is dropped.
    pub slow_reader: Duration,
    /// Connections of clients before more are refused; never more than the system's limit of open files leaves room for.
    pub max_connections: u32,
    /// Longest wait for a lock.
    pub max_wait: Duration,
    /// False loses acknowledged grants at a power cut.
    pub sync: bool,
    /// The namespaces there are; if none is named, any may be used.
    pub namespaces: BTreeMap<String, Namespace>,
    /// Bearer tokens that may do everything.
    pub admin_tokens: Vec<String>,
    /// Certificate that clients see.
    pub tls: Option<ClientTls>,
    /// Certificates by which replicas know each other.
    pub peer_tls: Option<PeerTls>,
    /// Serve whoever reaches the ports, also beyond loopback.
    pub trust_network: bool,
}

impl Config {
    /// A lone node with defaults.
    pub fn single(listen: SocketAddr, data: PathBuf) -> Self {
        Config {
            id: 1,
            listen,
            data,
            peers: BTreeMap::new(),
            cluster: "raftlock".to_owned(),
            client_url: String::new(),
            heartbeat: Duration::from_millis(80),
            snapshot_bytes: 32 << 20,
            groups: 1,
            min_ttl: Duration::from_millis(100),
            max_ttl: Duration::from_secs(60),
            default_ttl: Duration::from_secs(15),
            lock_delay: Duration::ZERO,
            max_waiters: 500,
            max_sessions: 100_000,
            slow_reader: Duration::from_secs(10),
            max_connections: 16_384,
            max_wait: Duration::from_secs(300),
            sync: true,
            namespaces: BTreeMap::new(),
            admin_tokens: Vec::new(),
            tls: None,
            peer_tls: None,
            trust_network: false,
        }
    }

    /// Does it make sense, and is nothing open to strangers by accident?
    pub fn check(&self) -> Result<(), String> {
        let count = self.peers.len();
        if self.id == 0 {
            return Err("id must be 1 or above".to_owned());
        }
        if count > 0 && !self.peers.contains_key(&self.id) {
            return Err(format!("--peers does not name this replica, {}", self.id));
        }
        if count > 1 && count.is_multiple_of(2) {
            return Err(format!(
                "{count} replicas bear no more failures than {}; use 1, 3 or 5",
                count - 1
            ));
        }
        self.check_peers()?;
        if self.heartbeat > HEARTBEAT_MAX {
            let most = HEARTBEAT_MAX.as_millis();
            return Err(format!("heartbeat_ms must be at most {most}"));
        }
        if !(1..=64).contains(&self.groups) {
            return Err("--groups must be 1 to 64".to_owned());
        }
        if self.snapshot_bytes == 0 {
            return Err("snapshot_kb must be above 0".to_owned());
        }
        self.own_limits().check()?;
        for (name, namespace) in &self.namespaces {
            namespace.check(name)?;
            let limits = self.limits(name);
            let sound = limits.map_or(Ok(()), |limits| limits.check());
            sound.map_err(|why| format!("namespace {name}: {why}"))?;
            check_tokens(&namespace.tokens, &format!("namespace {name}"))?;
        }
        check_tokens(&self.admin_tokens, "the administrator")?;
        if self.slow_reader.is_zero() {
            return Err("slow_reader_ms must be above 0".to_owned());
        }
        if self.max_connections == 0 {
            return Err("max_connections must be above 0".to_owned());
        }
        let url = &self.client_url;
        if !(url.is_empty() || url.starts_with("http://") || url.starts_with("https://")) {
            return Err(format!(
                "client_url {url:?} is no URL; write http://HOST:PORT"
            ));
        }
        if count > 1 && self.listen.ip().is_unspecified() && self.client_url.is_empty() {
            let listen = self.listen;
            return Err(format!(
                "{listen} is no address that clients could be sent to: say client_url, the base URL under which they reach this node"
            ));
        }
        self.check_exposure()
    }

    /// May a running node take over what this other configuration says? Names what would need a restart.
    pub fn check_reload(&self, other: &Config) -> Result<(), String> {
        let differs = [
            ("id", self.id != other.id),
            ("listen", self.listen != other.listen),
            ("data", self.data != other.data),
            ("peers", self.peers != other.peers),
            ("cluster", self.cluster != other.cluster),
            ("client_url", self.client_url != other.client_url),
            ("heartbeat_ms", self.heartbeat != other.heartbeat),
            ("snapshot_kb", self.snapshot_bytes != other.snapshot_bytes),
            ("groups", self.groups != other.groups),
            ("slow_reader_ms", self.slow_reader != other.slow_reader),
            (
                "max_connections",
                self.max_connections != other.max_connections,
            ),
            ("unsafe_no_fsync", self.sync != other.sync),
            ("tls", self.tls.is_some() != other.tls.is_some()),
            (
                "peer_tls",
                self.peer_tls.is_some() != other.peer_tls.is_some(),
            ),
        ];
        let names: Vec<&str> = differs
            .iter()
            .filter(|(_, differs)| *differs)
            .map(|(name, _)| *name)
            .collect();
        match names.is_empty() {
            true => Ok(()),
            false => Err(format!("a change of {} needs a restart", names.join(", "))),
        }
    }

    /// Every replica needs a number and an address of its own.
    fn check_peers(&self) -> Result<(), String> {
        if self.peers.contains_key(&0) {
            return Err("peers: a replica's number must be 1 or above".to_owned());
        }
        for (id, addr) in &self.peers {
            if let Some((other, _)) = self.peers.iter().find(|(n, at)| *n < id && *at == addr) {
                return Err(format!(
                    "peers: replicas {other} and {id} have the same address, {addr}"
                ));
            }
        }
        Ok(())
    }

    fn check_exposure(&self) -> Result<(), String> {
        if self.trust_network {
            return Ok(());
        }
        let listen = self.listen;
        let known = self.has_tokens() && self.tls.is_some();
        if !listen.ip().is_loopback() && !known {
            return Err(format!(
                "{listen} is reached from other machines: set bearer tokens and [tls] in --config, \
                 or say --trust-network if everyone who reaches it may do everything"
            ));
        }
        let own = self.peers.get(&self.id).filter(|_| self.peers.len() > 1);
        match own {
            Some(addr) if self.peer_tls.is_none() && !is_loopback(addr) => Err(format!(
                "the peer address {addr} is reached from other machines: set [peer_tls] in --config, \
                 or say --trust-network if everyone who reaches it may do everything"
            )),
            _ => Ok(()),
        }
    }

    fn tokens(&self) -> impl Iterator<Item = &String> {
        let named = self.namespaces.values().flat_map(|each| &each.tokens);
        self.admin_tokens.iter().chain(named)
    }

    /// Must clients show a bearer token?
    pub fn has_tokens(&self) -> bool {
        self.tokens().next().is_some()
    }

    fn own_limits(&self) -> Limits {
        Limits {
            min_ttl: self.min_ttl,
            max_ttl: self.max_ttl,
            default_ttl: self.default_ttl,
            lock_delay: self.lock_delay,
            max_waiters: self.max_waiters,
            max_sessions: self.max_sessions,
            ops_per_s: None,
        }
    }

    /// The limits of a namespace; `None` if namespaces are named and this is none of them.
    pub fn limits(&self, namespace: &str) -> Option<Limits> {
        let own = self.own_limits();
        if self.namespaces.is_empty() {
            return Some(own);
        }
        let said = self.namespaces.get(namespace)?;
        let ms = |said: Option<u64>, own| said.map_or(own, Duration::from_millis);
        let min_ttl = ms(said.min_ttl_ms, own.min_ttl);
        let max_ttl = ms(said.max_ttl_ms, own.max_ttl);
        let within = own.default_ttl.min(max_ttl).max(min_ttl);
        Some(Limits {
            min_ttl,
            max_ttl,
            default_ttl: ms(said.default_ttl_ms, within),
            lock_delay: ms(said.lock_delay_ms, own.lock_delay),
            max_waiters: said.max_waiters.unwrap_or(own.max_waiters),
            max_sessions: said.max_sessions.unwrap_or(own.max_sessions),
            ops_per_s: said.ops_per_s,
        })
    }
}

fn check_tokens(tokens: &[String], whose: &str) -> Result<(), String> {
    if tokens.iter().any(|token| token.len() < TOKEN_MIN) {
        return Err(format!(
            "a bearer token of {whose} is shorter than {TOKEN_MIN} bytes"
        ));
    }
    if !tokens
        .iter()
        .flat_map(|token| token.bytes())
        .all(|byte| byte.is_ascii_graphic())
    {
        return Err(format!(
            "a bearer token of {whose} has a character that no client can show; use ASCII letters, digits and signs"
        ));
    }
    Ok(())
}

fn is_loopback(addr: &str) -> bool {
    let host = addr.rsplit_once(':').map_or(addr, |(host, _)| host);
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn on(listen: &str) -> Config {
        Config::single(listen.parse().unwrap(), PathBuf::from("unused"))
    }

    #[test]
    fn nothing_listens_beyond_loopback_without_authentication_unless_told() {
        assert_eq!(on("127.0.0.1:1").check(), Ok(()));
        let mut open = on("10.0.0.1:1");
        assert!(open.check().unwrap_err().contains("--trust-network"));
        open.admin_tokens = vec!["0123456789abcdef".to_owned()];
        assert!(open.check().is_err(), "a token in clear text is none");
        open.tls = Some(ClientTls {
            cert: PathBuf::new(),
            key: PathBuf::new(),
        });
        assert_eq!(open.check(), Ok(()));
        open.peers = (1..=3).map(|id| (id, format!("10.0.0.{id}:2"))).collect();
        assert!(open.check().unwrap_err().contains("[peer_tls]"));
        open.trust_network = true;
        assert_eq!(open.check(), Ok(()));
    }

    #[test]
    fn a_reload_changes_policy_and_nothing_that_is_built_in() {
        let (running, mut other) = (on("127.0.0.1:1"), on("127.0.0.1:1"));
        other.admin_tokens = vec!["0123456789abcdef".to_owned()];
        other.max_waiters = 7;
        assert_eq!(running.check_reload(&other), Ok(()));
        other.groups = 2;
        other.id = 2;
        let why = running.check_reload(&other).unwrap_err();
        assert_eq!(why, "a change of id, groups needs a restart");
    }

    #[test]
    fn replicas_say_where_clients_reach_them() {
        let mut config = on("0.0.0.0:1");
        config.trust_network = true;
        assert_eq!(config.check(), Ok(()), "nobody is sent to a lone node");
        config.peers = (1..=3).map(|id| (id, format!("10.0.0.{id}:2"))).collect();
        assert!(config.check().unwrap_err().contains("client_url"));
        config.client_url = "http://a:1".to_owned();
        assert_eq!(config.check(), Ok(()));
    }

    #[test]
    fn short_tokens_are_refused() {
        let mut config = on("127.0.0.1:1");
        config.admin_tokens = vec!["secret".to_owned()];
        assert!(config.check().unwrap_err().contains("administrator"));
        for unshown in ["0123456789abcdef\n", " 0123456789abcdef", "0123456789äöüß"] {
            config.admin_tokens = vec![unshown.to_owned()];
            let why = config.check().expect_err(unshown);
            assert!(why.contains("no client can show"), "{why}");
        }
        config.admin_tokens.clear();
        let jobs = Namespace {
            tokens: vec![String::new()],
            ..Namespace::default()
        };
        config.namespaces.insert("jobs".to_owned(), jobs);
        assert!(config.check().unwrap_err().contains("namespace jobs"));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        type Make = fn(&mut Config);
        let ms = Duration::from_millis;
        let wrong: [(&str, Make); 13] = [
            ("id", |config| config.id = 0),
            ("snapshot_kb", |config| config.snapshot_bytes = 0),
            ("min_ttl_ms", |config| config.min_ttl = Duration::ZERO),
            ("max_ttl_ms", |config| {
                config.max_ttl = Duration::from_millis(99)
            }),
            ("default_ttl_ms", |config| {
                config.default_ttl = Duration::from_secs(61)
            }),
            ("lock_delay_ms", |config| {
                config.lock_delay = Duration::from_secs(5_000_000)
            }),
            ("slow_reader_ms", |config| {
                config.slow_reader = Duration::ZERO
            }),
            ("max_connections", |config| config.max_connections = 0),
            ("client_url", |config| {
                config.client_url = "host:7400".to_owned()
            }),
            ("max_sessions", |config| config.max_sessions = 0),
            ("heartbeat_ms", |config| {
                config.heartbeat = Duration::from_secs(11)
            }),
            ("same address", |config| {
                config.peers = (1..=3).map(|id| (id, "127.0.0.1:2".to_owned())).collect()
            }),
            ("number", |config| {
                config.peers = (0..=2).map(|id| (id, format!("127.0.0.1:{id}"))).collect()
            }),
        ];
        for (key, make) in wrong {
            let mut config = on("127.0.0.1:1");
            (config.min_ttl, config.max_ttl) = (ms(100), ms(60_000));
            assert_eq!(config.check(), Ok(()));
            make(&mut config);
            let why = config.check().expect_err(key);
            assert!(why.contains(key), "{key}: {why}");
        }
        let namespaces: [(&str, Namespace); 3] = [
            (
                "max_ttl_ms",
                Namespace {
                    max_ttl_ms: Some(50),
                    ..Namespace::default()
                },
            ),
            (
                "default_ttl_ms",
                Namespace {
                    max_ttl_ms: Some(500),
                    default_ttl_ms: Some(900),
                    ..Namespace::default()
                },
            ),
            (
                "lock_delay_ms",
                Namespace {
                    lock_delay_ms: Some(5_000_000_000),
                    ..Namespace::default()
                },
            ),
        ];
        for (key, jobs) in namespaces {
            let mut config = on("127.0.0.1:1");
            config.namespaces.insert("jobs".to_owned(), jobs);
            let why = config.check().expect_err(key);
            assert!(
                why.contains(key) && why.contains("namespace jobs"),
                "{key}: {why}"
            );
        }
    }

    #[test]
    fn a_namespace_that_is_not_named_has_no_limits() {
        let mut config = on("127.0.0.1:1");
        assert!(config.limits("any").is_some());
        let jobs = Namespace {
            max_ttl_ms: Some(5_000),
            ..Namespace::default()
        };
        config.namespaces.insert("jobs".to_owned(), jobs);
        assert_eq!(config.limits("any"), None);
        let limits = config.limits("jobs").unwrap();
        assert_eq!(limits.grant_ttl(Some(60_000)), 5_000);
        assert_eq!(limits.max_waiters, 500);
    }
}
