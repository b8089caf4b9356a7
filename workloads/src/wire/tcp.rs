//! Connections of one client, opened on first use and dropped after any
//! exchange whose answer did not come: a late answer must not be taken for the
//! next one's.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::locks::CallError;

/// What can be made from a fresh socket.
pub trait FromSocket: Sized {
    fn from_socket(socket: TcpStream) -> Self;

    /// Whether the other side kept it open and sent nothing unasked.
    fn is_open(&self) -> bool;
}

/// See [`FromSocket::is_open`].
pub fn is_open(socket: &TcpStream) -> bool {
    let blocked = |e: std::io::Error| e.kind() == std::io::ErrorKind::WouldBlock;
    socket.try_read(&mut [0]).is_err_and(blocked)
}

/// Idle connections kept: one for the client's calls, one for its watchdog's.
const KEPT: usize = 2;

/// Idle connections to one address.
pub struct Slot<C> {
    addr: String,
    timeout: Duration,
    idle: Mutex<Vec<C>>,
}

impl<C: FromSocket> Slot<C> {
    pub fn new(addr: String, timeout: Duration) -> Self {
        Slot {
            addr,
            timeout,
            idle: Mutex::new(Vec::new()),
        }
    }

    /// An idle connection that is still open, or a new one.
    ///
    /// # Errors
    /// Definite: without a connection nothing was sent.
    pub async fn take(&self) -> Result<C, CallError> {
        while let Some(conn) = self.idle().pop() {
            if conn.is_open() {
                return Ok(conn);
            }
        }
        connect(&self.addr, self.timeout).await.map(C::from_socket)
    }

    /// Gives back a connection on which nothing is outstanding.
    pub fn put(&self, conn: C) {
        let mut idle = self.idle();
        if idle.len() < KEPT {
            idle.push(conn);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<C>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a connection.
///
/// # Errors
/// Definite: nothing was sent.
pub async fn connect(addr: &str, within: Duration) -> Result<TcpStream, CallError> {
    let socket = match timeout(within, TcpStream::connect(addr)).await {
        Ok(Ok(socket)) => socket,
        Ok(Err(e)) => return Err(CallError::definite(format!("connect {addr}: {e}"))),
        Err(_) => return Err(CallError::definite(format!("connect {addr}: timeout"))),
    };
    socket
        .set_nodelay(true)
        .map_err(|e| CallError::definite(format!("connect {addr}: {e}")))?;
    Ok(socket)
}

/// A connection that answers each line by a line, in order.
pub struct LineConn {
    socket: TcpStream,
    buf: Vec<u8>,
}

impl FromSocket for LineConn {
    fn from_socket(socket: TcpStream) -> Self {
        LineConn {
            socket,
            buf: Vec::new(),
        }
    }

    fn is_open(&self) -> bool {
        is_open(&self.socket)
    }
}

impl LineConn {
    /// Sends `bytes` and reads one line. After an error drop the connection.
    ///
    /// # Errors
    /// Unknown: from the first byte sent on, it may have had its effect.
    pub async fn exchange(&mut self, bytes: &[u8], within: Duration) -> Result<Vec<u8>, CallError> {
        match timeout(within, self.try_exchange(bytes)).await {
            Ok(Ok(line)) => Ok(line),
            Ok(Err(e)) => Err(CallError::unknown(e.to_string())),
            Err(_) => Err(CallError::unknown("timeout")),
        }
    }

    async fn try_exchange(&mut self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        self.socket.write_all(bytes).await?;
        self.buf.clear();
        loop {
            if self.socket.read_buf(&mut self.buf).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            if self.buf.last() == Some(&b'\n') {
                self.buf.pop();
                return Ok(std::mem::take(&mut self.buf));
            }
        }
    }
}
