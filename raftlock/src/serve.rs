//! Starting and stopping a node.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::buckets::BucketMap;
use crate::config::Config;
use crate::group::{Applier, Batch, Driver, Group, Shared, Solo};
use crate::http::{self, App};
use crate::machine::Machine;
use crate::wal::{Flusher, RealDir, Record, RecordKind, Wal, WalError, WalOptions};

/// Why a node did not start or stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is not to be had.
    #[error("cannot listen on {addr}: {source}; choose another --listen")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The data directory is not usable.
    #[error("cannot use data directory {path}: {source}")]
    Data {
        /// The directory.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The log is not usable.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// The log holds an entry that cannot be read.
    #[error(
        "entry {index} of group {group} cannot be decoded; this directory was written by another version"
    )]
    Entry {
        /// The group.
        group: u32,
        /// Its index.
        index: u64,
    },
    /// The disk failed while serving.
    #[error("the disk failed: {0}")]
    Disk(String),
}

/// A running node. Dropping it stops the node.
pub struct Handle {
    addr: SocketAddr,
    stop: watch::Sender<bool>,
    failure: watch::Receiver<Option<String>>,
    tasks: JoinSet<()>,
    flushed: oneshot::Receiver<()>,
}

impl Handle {
    /// The address that it listens on (with the port that the system chose for port 0).
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Stops in order: no new connections, then the tasks, then the log; the data directory is free afterwards.
    pub async fn stop(mut self) {
        let _ = self.stop.send(true);
        self.tasks.abort_all();
        while self.tasks.join_next().await.is_some() {}
        let _ = tokio::time::timeout(Duration::from_secs(5), self.flushed).await;
    }

    /// Resolves when the node cannot go on (its disk failed).
    pub async fn failed(&mut self) -> ServeError {
        let failure = self.failure.wait_for(Option::is_some).await;
        let why = failure
            .ok()
            .and_then(|why| why.clone())
            .unwrap_or_else(|| "the log stopped".to_owned());
        ServeError::Disk(why)
    }
}

/// Starts a node: recovers its log, serves its API. Returns once it accepts connections.
pub async fn serve(config: Config) -> Result<Handle, ServeError> {
    let data = |source| ServeError::Data {
        path: config.data.display().to_string(),
        source,
    };
    let dir = Arc::new(RealDir::open(&config.data).map_err(data)?);
    let (wal, records) = Wal::open(
        dir,
        WalOptions {
            sync: config.sync,
            ..WalOptions::default()
        },
    )?;
    let (failing, failure) = watch::channel(None);
    let (flusher, flushed) = Flusher::start(wal, move |error| {
        tracing::error!(%error, "the disk failed; this node stops");
        let _ = failing.send(Some(error.to_string()));
    })
    .map_err(data)?;

    let mut tasks = JoinSet::new();
    let boot = rand::random();
    let mut groups = Vec::new();
    for id in 0..config.groups.max(1) {
        let (machine, last) = recover(id, &records)?;
        let term = machine.epoch() + 1;
        let shared = Shared::new(machine);
        let (applier, events) = Applier::new(Arc::clone(&shared), config.id, boot);
        let backend = Arc::new(Solo::new(
            id,
            config.id,
            flusher.clone(),
            applier,
            last,
            term,
        ));
        let (group, inbox) = Group::new(id, Arc::clone(&shared));
        tasks.spawn(Driver::new(backend, shared, config.id, boot).run(inbox, events));
        groups.push(group);
    }

    let listener = TcpListener::bind(config.listen)
        .await
        .map_err(|source| ServeError::Listen {
            addr: config.listen,
            source,
        })?;
    let addr = listener.local_addr().map_err(|source| ServeError::Listen {
        addr: config.listen,
        source,
    })?;
    let app = Arc::new(App {
        buckets: BucketMap::even(config.groups),
        addresses: BTreeMap::from([(config.id, format!("http://{addr}"))]),
        groups,
        config,
    });
    let (stop, mut stopping) = watch::channel(false);
    tasks.spawn(async move {
        let shutdown = async move { drop(stopping.wait_for(|stop| *stop).await) };
        if let Err(error) = axum::serve(listener, http::router(app))
            .with_graceful_shutdown(shutdown)
            .await
        {
            tracing::error!(%error, "the listener failed");
        }
    });
    tracing::info!(%addr, "serving");
    Ok(Handle {
        addr,
        stop,
        failure,
        tasks,
        flushed,
    })
}

/// Replays a group's entries.
fn recover(group: u32, records: &[Record]) -> Result<(Machine, u64), ServeError> {
    let mut machine = Machine::new();
    let mut last = 0;
    let mut effects = Vec::new();
    for record in records
        .iter()
        .filter(|record| record.group == group && record.kind == RecordKind::Entry)
    {
        let batch: Batch =
            postcard::from_bytes(&record.payload).map_err(|_| ServeError::Entry {
                group,
                index: record.index,
            })?;
        machine.apply(record.index, batch.at_ms, &batch.ops, &mut effects);
        effects.clear();
        last = record.index;
    }
    Ok((machine, last))
}

/// Serves until SIGINT or SIGTERM, or until the disk fails.
pub async fn run_until_signal(config: Config) -> Result<(), ServeError> {
    let mut handle = serve(config).await?;
    println!("listening on {}", handle.addr());
    tokio::select! {
        error = handle.failed() => return Err(error),
        () = signalled() => {}
    }
    handle.stop().await;
    Ok(())
}

async fn signalled() {
    let term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
    match term {
        Ok(mut term) => {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = term.recv() => {}
            }
        }
        Err(_) => drop(tokio::signal::ctrl_c().await),
    }
}
