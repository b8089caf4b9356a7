//! Where a run's processes live. A host starts the nodes of a lock service; workers and the
//! witness are programs of this machine on either host. All of them share one network.
//!
//! A host never names a system and knows no fault: it hands out [`Unit`]s, and a fault acts on
//! a unit's processes and network namespace.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::time::{Instant, sleep};

use crate::images::{Image, Say};

mod data;
pub mod docker;
mod local;
mod machine;
pub mod namespace;
mod net;
pub mod proc;
pub mod register;
pub mod site;
pub mod spawn;
pub mod spec;
pub mod unit;
mod unprivileged;

pub use docker::docker_error;
pub use site::{HostKind, NetMode, Site};
pub use spec::{DataFate, FileSpec, NodeSpec, Prepare, ProcessSpec, RunAs};
pub use unit::{Process, Unit, UnitId};

/// What went wrong while the machine was asked for something: one line, with what to do.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The machine cannot do it: not a bug, and not a verdict on the service.
    #[error("{what}: {reason}; {hint}")]
    Unavailable {
        what: String,
        reason: String,
        hint: String,
    },
    #[error("{id} did not start: {reason}")]
    Start { id: UnitId, reason: String },
    #[error("{id} is not there")]
    NoSuchUnit { id: UnitId },
    #[error("{what}: {source}")]
    Io {
        what: String,
        source: std::io::Error,
    },
    #[error("docker: {what}: {reason}")]
    Docker { what: String, reason: String },
    #[error("network: {what}: {reason}")]
    Network { what: String, reason: String },
}

impl HostError {
    pub(crate) fn io(what: impl fmt::Display) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.to_string();
        move |source| Self::Io { what, source }
    }
}

/// What a host needs to know of the run it serves.
#[derive(Debug, Clone, Default)]
pub struct HostOptions {
    /// Unique on this machine; becomes a label and part of names. `[a-z0-9-]`, at most 40 bytes.
    pub run_id: String,
    /// The run folder: `logs/` in it receives the output of nodes and the stderr of workers.
    pub run_dir: PathBuf,
    /// Image to use instead of the one a node's recipe names (`--image`).
    pub image: Option<String>,
    /// Told what takes long: images being built.
    pub say: Say,
}

/// One run's machines and network.
///
/// Dropping a host kills what it started, as far as that can be done without waiting;
/// [`Host::stop`] does it in order and is what a controller calls.
#[async_trait]
pub trait Host: Send + Sync {
    /// The layout of the run's network and what this host can do.
    fn site(&self) -> &Site;

    /// Starts `node:INDEX`; its address is [`Site::node_addr`] of the same index.
    /// Returns when its program was executed, not when the service answers.
    async fn start_node(&self, index: usize, spec: NodeSpec) -> Result<Arc<Unit>, HostError>;

    /// Kills the node if it runs (SIGKILL to all of its processes) and waits until it is gone.
    async fn kill_node(&self, index: usize) -> Result<(), HostError>;

    /// Kills the node if it runs, then starts its program again in the same network namespace, so that
    /// its address and a partition that is in force both stay.
    async fn restart_node(&self, index: usize, data: DataFate) -> Result<(), HostError>;

    /// How the node's program ended, its exit status or signal; `None` while it runs, and where that is not known (yet).
    async fn node_exit(&self, index: usize) -> Option<String>;

    /// The same, asked for again until it is known, for so long at most.
    async fn node_exit_within(&self, index: usize, limit: Duration) -> Option<String> {
        let until = Instant::now() + limit;
        loop {
            let how = self.node_exit(index).await;
            if how.is_some() || Instant::now() > until {
                return how;
            }
            sleep(ASK_AGAIN).await;
        }
    }

    /// Copies the node's data directory aside under `label`, for [`DataFate::Snapshot`].
    /// The copy of a running node is what a crash would leave, at best.
    async fn snapshot_node(&self, index: usize, label: &str) -> Result<(), HostError>;

    /// Starts a worker or the witness: a program of this machine with a namespace and address of its own.
    async fn start_process(&self, spec: ProcessSpec) -> Result<Process, HostError>;

    /// What its nodes were started from so far; none on a host without images.
    async fn images(&self) -> Vec<Image> {
        Vec::new()
    }

    /// Ends everything: processes, containers, network, scratch files. Idempotent.
    async fn stop(&self) -> Result<(), HostError>;
}

const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Cleans up after runs that were killed, then prepares a run's network on the named host.
///
/// # Errors
/// What this machine lacks, with the command that brings it.
pub async fn open(kind: HostKind, options: HostOptions) -> Result<Arc<dyn Host>, HostError> {
    let healed = crate::heal::heal().await?;
    for run in &healed.runs {
        options.say.line(&format!(
            "cleaned up after run {run}, whose controller was killed"
        ));
    }
    for failure in &healed.failed {
        tracing::warn!("cleaning up: {failure}");
    }
    match kind {
        HostKind::Local => Ok(Arc::new(local::Local::open(options).await?)),
        HostKind::Docker => Ok(Arc::new(docker::Docker::open(options).await?)),
    }
}

/// Starts nodes at the same time, `node:0` first in the answer.
///
/// # Errors
/// The first that did not start.
pub async fn start_nodes(
    host: &dyn Host,
    specs: Vec<NodeSpec>,
) -> Result<Vec<Arc<Unit>>, HostError> {
    let starts = specs.into_iter().enumerate();
    let starts = starts.map(|(index, spec)| host.start_node(index, spec));
    futures_util::future::try_join_all(starts).await
}

/// FNV-1a: a short name for a text, the same on every machine.
pub(crate) fn fnv(text: &[u8]) -> u64 {
    text.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
