//! The program's commands.

pub mod bench;
mod cluster;
mod load;
pub mod lock;
pub mod look;

use std::time::Duration;

use raftlock_client::{Api, CallError};

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
}

impl Endpoints {
    fn api(&self) -> Result<Api, CallError> {
        Api::new(&self.endpoints, Duration::from_secs(5))
    }
}
