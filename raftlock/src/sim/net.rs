//! Peers' connections over the simulated network.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use turmoil::net::{TcpListener, TcpStream};

use crate::transport::{Listener, Stream, Transport};

type Pending<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// turmoil's TCP.
pub struct SimNet;

impl Transport for SimNet {
    fn dial<'a>(&'a self, addr: &'a str) -> Pending<'a, Box<dyn Stream>> {
        Box::pin(async move {
            let stream = tokio::time::timeout(
                Duration::from_millis(500),
                TcpStream::connect(addr.to_owned()),
            )
            .await??;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }

    fn listen<'a>(&'a self, addr: &'a str) -> Pending<'a, Box<dyn Listener>> {
        Box::pin(async move {
            let port = addr
                .rsplit(':')
                .next()
                .and_then(|port| port.parse::<u16>().ok())
                .unwrap_or(0);
            let listener = TcpListener::bind(("0.0.0.0", port)).await?;
            Ok(Box::new(SimListener(listener)) as Box<dyn Listener>)
        })
    }
}

struct SimListener(TcpListener);

impl Listener for SimListener {
    fn accept(&mut self) -> Pending<'_, Box<dyn Stream>> {
        Box::pin(async move {
            let (stream, _) = self.0.accept().await?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }

    fn addr(&self) -> String {
        "simulated".to_owned()
    }
}
