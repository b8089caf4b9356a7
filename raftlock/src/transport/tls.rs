//! TLS by rustls with ring: towards clients, and between replicas, which show each other certificates.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use raftlock_client::pem::{self, bad};
use rustls::pki_types::ServerName;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{DIAL, Listener, Pending, Stranger, Strangers, Stream, Transport};
use crate::config::{ClientTls, PeerTls};
use crate::host::{sleep, timeout};

/// Longest a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Handshakes at once.
const HANDSHAKES: usize = 256;

/// What can be replaced while it is in use; connections that there are keep what they began with.
pub struct Live<T>(Arc<RwLock<T>>);

impl<T> Clone for Live<T> {
    fn clone(&self) -> Self {
        Live(Arc::clone(&self.0))
    }
}

impl<T: Clone> Live<T> {
    /// Begins with this one.
    pub fn new(value: T) -> Self {
        Live(Arc::new(RwLock::new(value)))
    }

    /// The present one.
    pub fn get(&self) -> T {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Another one from now on.
    pub fn set(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = value;
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Accepts clients; who they are is said by their tokens.
pub fn acceptor(files: &ClientTls) -> io::Result<TlsAcceptor> {
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(pem::certificates(&files.cert)?, pem::key(&files.key)?)
        .map_err(|error| bad(&files.cert, error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// TLS between replicas: each end shows a certificate of the peers' authority, and the one that answers must be certified
/// for the host that was dialled.
#[derive(Clone)]
pub struct MutualTls {
    ends: Live<(TlsAcceptor, TlsConnector)>,
}

impl MutualTls {
    /// Reads the certificates.
    pub fn open(files: &PeerTls) -> io::Result<Self> {
        let ends = Live::new(Self::ends(files)?);
        Ok(MutualTls { ends })
    }

    /// Reads them anew; both ends of later connections use them. What cannot be read changes nothing.
    pub fn reload(&self, files: &PeerTls) -> io::Result<()> {
        self.ends.set(Self::ends(files)?);
        Ok(())
    }

    fn ends(files: &PeerTls) -> io::Result<(TlsAcceptor, TlsConnector)> {
        let roots = Arc::new(pem::authorities(&files.ca)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider())
            .build()
            .map_err(|error| bad(&files.ca, error))?;
        let server = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(pem::certificates(&files.cert)?, pem::key(&files.key)?)
            .map_err(|error| bad(&files.cert, error))?;
        let client = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_client_auth_cert(pem::certificates(&files.cert)?, pem::key(&files.key)?)
            .map_err(|error| bad(&files.cert, error))?;
        Ok((
            TlsAcceptor::from(Arc::new(server)),
            TlsConnector::from(Arc::new(client)),
        ))
    }
}

impl Transport for MutualTls {
    fn dial<'a>(&'a self, addr: &'a str) -> Pending<'a, Box<dyn Stream>> {
        Box::pin(async move {
            let host = addr.rsplit_once(':').map_or(addr, |(host, _)| host);
            let host = host.trim_matches(['[', ']']).to_owned();
            let name = ServerName::try_from(host).map_err(io::Error::other)?;
            let stream = timeout(DIAL, TcpStream::connect(addr)).await??;
            stream.set_nodelay(true)?;
            let stream = timeout(HANDSHAKE, self.ends.get().1.connect(name, stream)).await??;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }

    fn listen<'a>(&'a self, addr: &'a str) -> Pending<'a, Box<dyn Listener>> {
        Box::pin(async move {
            let ends = self.ends.clone();
            let listener = TcpListener::bind(addr).await?;
            let listener = TlsListener::new(listener, move || ends.get().0)?;
            Ok(Box::new(listener) as Box<dyn Listener>)
        })
    }
}

/// Accepts connections whose handshake is done; a slow one holds up no other.
pub struct TlsListener {
    addr: SocketAddr,
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

impl TlsListener {
    /// Accepts on `listener` until this is dropped, by the acceptor of the moment.
    pub fn new(
        listener: TcpListener,
        acceptor: impl Fn() -> TlsAcceptor + Send + 'static,
    ) -> io::Result<Self> {
        let addr = listener.local_addr()?;
        let (tx, ready) = mpsc::channel(64);
        tokio::spawn(async move {
            let mut handshakes = Strangers::new(HANDSHAKES);
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    () = tx.closed() => return,
                };
                let Ok((stream, from)) = accepted else {
                    sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let (acceptor, tx) = (acceptor(), tx.clone());
                handshakes.enter(|stranger| {
                    tokio::spawn(handshake(stream, from, acceptor, tx, stranger)).abort_handle()
                });
            }
        });
        Ok(TlsListener { addr, ready })
    }
}

async fn handshake(
    stream: TcpStream,
    from: SocketAddr,
    acceptor: TlsAcceptor,
    done: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>,
    _until_done: Stranger,
) {
    let _ = stream.set_nodelay(true);
    match timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => drop(done.send((stream, from)).await),
        Ok(Err(error)) => tracing::debug!(%from, %error, "a TLS handshake failed"),
        Err(_) => tracing::debug!(%from, "a TLS handshake took too long"),
    }
}

impl Listener for TlsListener {
    fn accept(&mut self) -> Pending<'_, Box<dyn Stream>> {
        Box::pin(async move {
            let (stream, _) = self
                .ready
                .recv()
                .await
                .ok_or_else(|| io::Error::other("the listener ended"))?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }

    fn addr(&self) -> String {
        self.addr.to_string()
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(accepted) => accepted,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addr)
    }
}
