//! Starting and stopping a node.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::backup;
use crate::config::Config;
use crate::http::{self, App};
use crate::raft::{Node, NodeError, NodeSetup, PeerBook, ReplicaStatus};
use crate::transport::{self, MutualTls, Tcp, TlsListener, Transport};
use crate::wal::{Dir, Flusher, RealDir, Wal, WalError, WalOptions};

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
    /// The groups cannot run.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The configuration contradicts itself.
    #[error("configuration: {0}")]
    Config(String),
    /// The node cannot go on.
    #[error("this node cannot go on: {0}")]
    Failed(String),
}

/// A running node. Dropping it stops the node.
pub struct Handle {
    addr: SocketAddr,
    stop: watch::Sender<bool>,
    failure: watch::Receiver<Option<String>>,
    tasks: JoinSet<()>,
    node: Node,
    flushed: oneshot::Receiver<()>,
}

impl Handle {
    /// The address that it listens on (with the port that the system chose for port 0).
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The groups' states.
    pub fn status(&self) -> Vec<ReplicaStatus> {
        self.node.status()
    }

    /// Waits until every group has a leader, at most so long; false if not.
    pub async fn wait_ready(&self, limit: Duration) -> bool {
        self.node.wait_ready(limit).await
    }

    /// Stops in order: hands leaderships over, takes no new connections, ends the tasks, then the log; the data directory is free afterwards.
    pub async fn stop(mut self) {
        self.node.stop().await;
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
        ServeError::Failed(why)
    }
}

/// Starts a node: recovers its log, joins its peers, serves its API. Returns once it accepts connections; a lone node
/// then also leads.
pub async fn serve(config: Config) -> Result<Handle, ServeError> {
    config.check().map_err(ServeError::Config)?;
    let data = |source| ServeError::Data {
        path: config.data.display().to_string(),
        source,
    };
    let dir: Arc<dyn Dir> = Arc::new(RealDir::open(&config.data).map_err(data)?);
    let (wal, records) = Wal::open(
        Arc::clone(&dir),
        WalOptions {
            sync: config.sync,
            ..WalOptions::default()
        },
    )?;
    let (failing, failure) = watch::channel(None);
    let failing_disk = failing.clone();
    let (flusher, flushed) = Flusher::start(wal, move |error| {
        tracing::error!(%error, "the disk failed; this node stops");
        let _ = failing_disk.send_replace(Some(error.to_string()));
    })
    .map_err(data)?;

    let listen = config.listen;
    let listen_error = move |source| ServeError::Listen {
        addr: listen,
        source,
    };
    let listener = TcpListener::bind(config.listen)
        .await
        .map_err(listen_error)?;
    let addr = listener.local_addr().map_err(listen_error)?;
    let url = if config.client_url.is_empty() {
        let scheme = if config.tls.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{addr}")
    } else {
        config.client_url.clone()
    };
    let (beginning, cluster) = match backup::beginning(&*dir).map_err(data)? {
        Some((backup, crc)) => (Some(backup), format!("{} from {crc:08x}", config.cluster)),
        None => (None, config.cluster.clone()),
    };
    let book = PeerBook::open(config.id, &cluster, url, Arc::clone(&dir), flusher.stats())
        .map_err(data)?;
    let book = Arc::new(book);
    let certificates = |error: std::io::Error| ServeError::Config(error.to_string());
    let transport: Arc<dyn Transport> = match &config.peer_tls {
        Some(files) => Arc::new(MutualTls::open(files).map_err(certificates)?),
        None => Arc::new(Tcp),
    };
    let setup = NodeSetup {
        peers: config.peers.clone(),
        groups: config.groups,
        heartbeat: config.heartbeat,
        snapshot_bytes: config.snapshot_bytes,
        keep_entries: 200,
        dir,
        flusher,
        records,
        beginning,
        book: Arc::clone(&book),
        transport,
    };
    let node = Node::start(setup, failing).await?;
    let tls = config
        .tls
        .as_ref()
        .map(transport::acceptor)
        .transpose()
        .map_err(certificates)?;
    let app = App::new(config, node.groups.clone(), node.rafts(), book);
    let lone = app.config.peers.len() < 2;
    if lone && !node.wait_ready(Duration::from_secs(10)).await {
        tracing::warn!("not leading yet");
    }
    let (stop, stopping) = watch::channel(false);
    let mut tasks = JoinSet::new();
    match tls {
        Some(acceptor) => {
            let listener = TlsListener::new(listener, acceptor).map_err(listen_error)?;
            tasks.spawn(answer(listener, app, stopping));
        }
        // Answers are small: held back for the acknowledgement of the one before, a hand-over would take 40 ms.
        None => {
            let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
            tasks.spawn(answer(listener, app, stopping));
        }
    }
    tracing::info!(%addr, "serving");
    Ok(Handle {
        addr,
        stop,
        failure,
        tasks,
        node,
        flushed,
    })
}

async fn answer<L>(listener: L, app: Arc<App>, mut stopping: watch::Receiver<bool>)
where
    L: axum::serve::Listener<Addr: std::fmt::Debug>,
{
    let shutdown = async move { drop(stopping.wait_for(|stop| *stop).await) };
    if let Err(error) = axum::serve(listener, http::router(app))
        .with_graceful_shutdown(shutdown)
        .await
    {
        tracing::error!(%error, "the listener failed");
    }
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
