//! Starting and stopping a node.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::{Listener, ListenerExt};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::DropGuard;

use crate::args::ServeArgs;
use crate::backup;
use crate::buckets;
use crate::config::Config;
use crate::host::{sleep, timeout};
use crate::http::{self, App};
use crate::raft::{Node, NodeError, NodeSetup, PeerBook, ReplicaStatus};
use crate::transport::{self, Live, MutualTls, Tcp, TlsListener, Transport};
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

/// How long clients may take to take their last answers when a node stops.
const FAREWELL: Duration = Duration::from_secs(1);

/// How often it is written down how far the peers are.
const WRITE_DOWN: Duration = Duration::from_secs(10);

/// A running node. Dropping it stops the node.
pub struct Handle {
    addr: SocketAddr,
    app: Arc<App>,
    failure: watch::Receiver<Option<String>>,
    answering: JoinSet<()>,
    tending: JoinSet<()>,
    book: Arc<PeerBook>,
    _ended: DropGuard,
    node: Node,
    flushed: oneshot::Receiver<()>,
    certificate: Option<Live<TlsAcceptor>>,
    peers: Option<MutualTls>,
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

    /// Waits until every group has a leader and the bucket map is known, at most so long; false if not.
    pub async fn wait_ready(&self, limit: Duration) -> bool {
        let ready = async {
            while !self.node.wait_ready(limit).await || self.app.map().is_err() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(limit, ready).await.is_ok()
    }

    /// Takes tokens, namespaces, limits and certificates of a configuration from now on; what is wrong with it changes nothing.
    pub fn reload(&self, config: &Config) -> Result<(), ServeError> {
        let wrong = |error: std::io::Error| ServeError::Config(error.to_string());
        config.check().map_err(ServeError::Config)?;
        self.app
            .config
            .check_reload(config)
            .map_err(ServeError::Config)?;
        let acceptor = config.tls.as_ref().map(transport::acceptor).transpose();
        let acceptor = acceptor.map_err(wrong)?;
        if let (Some(peers), Some(files)) = (&self.peers, &config.peer_tls) {
            peers.reload(files).map_err(wrong)?;
        }
        if let (Some(live), Some(acceptor)) = (&self.certificate, acceptor) {
            live.set(acceptor);
        }
        self.app.reload(config);
        tracing::info!("tokens, namespaces, limits and certificates were read anew");
        Ok(())
    }

    /// Stops in order: hands leaderships over, answers what waits, takes no new connections, ends the tasks, then the log;
    /// nothing uses the data directory afterwards.
    pub async fn stop(mut self) {
        self.tending.shutdown().await;
        self.node.stop().await;
        note(self.book.write_down());
        self.app.stopped();
        let _ = timeout(FAREWELL, self.answering.join_next()).await;
        self.answering.shutdown().await;
        let _ = timeout(2 * FAREWELL, self.app.tasks.wait()).await;
        let _ = timeout(Duration::from_secs(5), &mut self.flushed).await;
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
    let beginning = backup::beginning(&*dir).map_err(data)?;
    if let Some((backup, _)) = &beginning {
        backup.check_groups(config.groups).map_err(data)?;
    }
    buckets::check_groups(&*dir, config.groups).map_err(data)?;
    check_log(&*dir).map_err(data)?;
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
    let (beginning, cluster) = match beginning {
        Some((backup, crc)) => (Some(backup), format!("{} from {crc:08x}", config.cluster)),
        None => (None, config.cluster.clone()),
    };
    // Replicas with other groups would take one group for another.
    let cluster = format!("{cluster} of {} groups", config.groups);
    let replicas = config.peers.keys().copied();
    let (files, stats) = (Arc::clone(&dir), flusher.stats());
    let telling = failing.clone();
    let book = PeerBook::open(config.id, replicas, &cluster, url, files, stats, telling);
    let book = book.map_err(data)?;
    let book = Arc::new(book);
    let certificates = |error: std::io::Error| ServeError::Config(error.to_string());
    let peers = config.peer_tls.as_ref().map(MutualTls::open).transpose();
    let peers = peers.map_err(certificates)?;
    let transport: Arc<dyn Transport> = match &peers {
        Some(mutual) => Arc::new(mutual.clone()),
        None => Arc::new(Tcp),
    };
    let setup = NodeSetup {
        peers: config.peers.clone(),
        // The last one keeps the bucket map.
        groups: config.groups + 1,
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
    let acceptor = config.tls.as_ref().map(transport::acceptor).transpose();
    let certificate = acceptor.map_err(certificates)?.map(Live::new);
    let app = App::new(
        config,
        node.groups.clone(),
        node.replicas(),
        Arc::clone(&book),
    );
    let (mut tending, mut answering) = (JoinSet::new(), JoinSet::new());
    tending.spawn(http::keep_map(Arc::clone(&app)));
    if app.config.peers.len() > 1 {
        tending.spawn(write_down(Arc::clone(&book)));
    }
    match certificate.clone() {
        Some(live) => {
            let listener = TlsListener::new(listener, move || live.get()).map_err(listen_error)?;
            answering.spawn(answer(listener, Arc::clone(&app)))
        }
        // Answers are small: held back for the acknowledgement of the one before, a hand-over would take 40 ms.
        None => {
            let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
            answering.spawn(answer(listener, Arc::clone(&app)))
        }
    };
    let handle = Handle {
        addr,
        _ended: app.stopping.clone().drop_guard(),
        app,
        failure,
        answering,
        tending,
        book,
        node,
        flushed,
        certificate,
        peers,
    };
    let lone = handle.app.config.peers.len() < 2;
    if lone && !handle.wait_ready(Duration::from_secs(10)).await {
        tracing::warn!("not leading yet");
    }
    tracing::info!(%addr, "serving");
    Ok(handle)
}

async fn write_down(book: Arc<PeerBook>) {
    loop {
        sleep(WRITE_DOWN).await;
        let book = Arc::clone(&book);
        if let Ok(done) = tokio::task::spawn_blocking(move || book.write_down()).await {
            note(done);
        }
    }
}

fn note(written: std::io::Result<()>) {
    if let Err(error) = written {
        tracing::warn!(%error, "cannot write down how far the peers are");
    }
}

/// A directory that was used has a log; without it the node would begin anew, with old tokens.
fn check_log(dir: &dyn Dir) -> std::io::Result<()> {
    let names = dir.list()?;
    let has = |fits: fn(&str) -> bool| names.iter().any(|name| fits(name));
    match has(|name| name == "peers.json") && !has(|name| name.starts_with("log-")) {
        true => Err(std::io::Error::other(
            "its log is gone: it cannot go on from nothing; use a new directory, or restore a backup",
        )),
        false => Ok(()),
    }
}

async fn answer<L: Listener>(listener: L, app: Arc<App>) {
    let room = http::room(app.config.max_connections);
    let stopping = app.stopping.clone();
    http::serve_clients(listener, http::router(app), room, stopping).await;
}

/// Serves until SIGINT or SIGTERM, or until the disk fails. SIGHUP reads the configuration anew.
pub async fn run_until_signal(args: ServeArgs) -> Result<(), ServeError> {
    let read = || Config::try_from(args.clone()).map_err(ServeError::Config);
    let signals = |source| ServeError::Config(format!("cannot listen for signals: {source}"));
    let mut hangup = signal(SignalKind::hangup()).map_err(signals)?;
    let mut term = signal(SignalKind::terminate()).map_err(signals)?;
    let mut handle = serve(read()?).await?;
    println!("listening on {}", handle.addr());
    loop {
        tokio::select! {
            error = handle.failed() => return Err(error),
            _ = tokio::signal::ctrl_c() => break,
            _ = term.recv() => break,
            _ = hangup.recv() => {
                if let Err(error) = read().and_then(|config| handle.reload(&config)) {
                    tracing::error!(%error, "nothing was read anew");
                }
            }
        }
    }
    tracing::info!("stopping: handing leaderships over");
    handle.stop().await;
    tracing::info!("stopped");
    Ok(())
}
