//! Connections between replicas, as a trait: TCP, TLS, or a simulated network.

mod strangers;
mod tls;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use crate::host;

pub use strangers::{Stranger, Strangers};
pub use tls::{Live, MutualTls, TlsListener, acceptor};

/// A byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type Pending<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// Dials and accepts connections between replicas.
pub trait Transport: Send + Sync + 'static {
    /// Connects to `host:port`.
    fn dial<'a>(&'a self, addr: &'a str) -> Pending<'a, Box<dyn Stream>>;
    /// Listens on `host:port`.
    fn listen<'a>(&'a self, addr: &'a str) -> Pending<'a, Box<dyn Listener>>;
}

/// Accepts connections.
pub trait Listener: Send {
    /// The next connection.
    fn accept(&mut self) -> Pending<'_, Box<dyn Stream>>;
    /// Where it listens.
    fn addr(&self) -> String;
}

/// Plain TCP.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tcp;

/// A peer that does not answer a SYN is tried again, not waited for.
const DIAL: Duration = Duration::from_millis(500);

impl Transport for Tcp {
    fn dial<'a>(&'a self, addr: &'a str) -> Pending<'a, Box<dyn Stream>> {
        Box::pin(async move {
            let stream = host::timeout(DIAL, TcpStream::connect(addr)).await??;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }

    fn listen<'a>(&'a self, addr: &'a str) -> Pending<'a, Box<dyn Listener>> {
        Box::pin(async move { Ok(Box::new(TcpListener::bind(addr).await?) as Box<dyn Listener>) })
    }
}

impl Listener for TcpListener {
    fn accept(&mut self) -> Pending<'_, Box<dyn Stream>> {
        Box::pin(async move {
            let (stream, _) = TcpListener::accept(self).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }

    fn addr(&self) -> String {
        self.local_addr()
            .map_or_else(|_| "?".to_owned(), |addr| addr.to_string())
    }
}
