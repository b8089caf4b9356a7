//! The program's commands.

pub mod backup;
pub mod bench;
mod family;
pub mod lock;
pub mod look;

use std::path::PathBuf;
use std::time::Duration;

use raftlock_client::{Api, CallError, Security};

/// Where the cluster is.
#[derive(Debug, Clone, clap::Args)]
pub struct Endpoints {
    /// Nodes of the cluster, HOST:PORT, separated by commas
    #[arg(
        long,
        env = "RAFTLOCK_ENDPOINTS",
        value_delimiter = ',',
        default_value = "127.0.0.1:7400"
    )]
    pub endpoints: Vec<String>,
    #[command(flatten)]
    pub secure: Secure,
}

/// What this program shows and whom it trusts.
#[derive(Debug, Clone, clap::Args)]
pub struct Secure {
    /// Bearer token; better in the environment than among the arguments, which others can read
    #[arg(long, env = "RAFTLOCK_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Authority that signed the nodes' certificates, PEM; the nodes are then reached by TLS
    #[arg(long, env = "RAFTLOCK_CA")]
    ca: Option<PathBuf>,
}

impl Secure {
    fn security(&self) -> Security {
        Security {
            token: self.token.clone(),
            ca: self.ca.clone(),
        }
    }
}

impl Endpoints {
    fn api(&self) -> Result<Api, CallError> {
        let security = self.secure.security();
        Api::secured(&self.endpoints, Duration::from_secs(5), security)
    }
}
