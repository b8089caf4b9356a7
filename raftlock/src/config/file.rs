//! A node's configuration as a TOML file. Flags go before what it says.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::Namespace;

/// Files of the certificate that clients see.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientTls {
    /// Certificate chain, PEM.
    pub cert: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
}

/// Files of the certificates by which replicas know each other.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerTls {
    /// This replica's certificate chain, PEM; it names the host of its peer address.
    pub cert: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// The authority that signed all replicas' certificates and nothing else, PEM.
    pub ca: PathBuf,
}

/// The file. Every key is as the flag of that name.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConfigFile {
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) data: Option<PathBuf>,
    pub(crate) id: Option<u64>,
    pub(crate) peers: BTreeMap<String, String>,
    pub(crate) cluster: Option<String>,
    pub(crate) client_url: Option<String>,
    pub(crate) heartbeat_ms: Option<u64>,
    pub(crate) snapshot_kb: Option<u32>,
    pub(crate) groups: Option<u32>,
    pub(crate) min_ttl_ms: Option<u64>,
    pub(crate) max_ttl_ms: Option<u64>,
    pub(crate) default_ttl_ms: Option<u64>,
    pub(crate) lock_delay_ms: Option<u64>,
    pub(crate) max_waiters: Option<u32>,
    pub(crate) max_sessions: Option<u32>,
    pub(crate) slow_reader_ms: Option<u64>,
    pub(crate) max_connections: Option<u32>,
    pub(crate) trust_network: bool,
    pub(crate) admin_tokens: Vec<String>,
    pub(crate) admin_token_files: Vec<PathBuf>,
    pub(crate) tls: Option<ClientTls>,
    pub(crate) peer_tls: Option<PeerTls>,
    pub(crate) namespaces: BTreeMap<String, Namespace>,
}

impl ConfigFile {
    /// Reads it.
    pub fn read(path: &Path) -> Result<Self, String> {
        let place = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| format!("{place}: {error}"))?;
        let mut file: ConfigFile = toml::from_str(&text)
            .map_err(|error| format!("{place}{}", in_one_line(&text, &error)))?;
        file.admin_tokens
            .extend(tokens_in(&file.admin_token_files)?);
        for namespace in file.namespaces.values_mut() {
            namespace.tokens.extend(tokens_in(&namespace.token_files)?);
        }
        Ok(file)
    }
}

/// Where in a file, and what is wrong there.
fn in_one_line(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let at = before.map_or_else(String::new, |before| {
        let (line, start) = (before.matches('\n').count() + 1, before.rfind('\n'));
        let column = before[start.map_or(0, |at| at + 1)..].chars().count() + 1;
        format!(":{line}:{column}")
    });
    format!("{at}: {}", error.message())
}

fn tokens_in(files: &[PathBuf]) -> Result<Vec<String>, String> {
    let one = |path: &PathBuf| {
        let text = std::fs::read_to_string(path);
        text.map(|text| text.trim().to_owned())
            .map_err(|error| format!("token file {}: {error}", path.display()))
    };
    files.iter().map(one).collect()
}
