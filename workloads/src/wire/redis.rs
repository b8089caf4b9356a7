//! Calls to a Redis server: one at a time on a connection, never sent twice.
//!
//! The encoding is the redis crate's. The connection is ours: the last step of
//! a fenced write must be the socket write itself, and a closed connection must
//! be seen *before* a command is sent on it, since only then is the failure
//! definite.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use redis::{Cmd, FromRedisValue, RedisError, Value, ValueCodec};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::codec::Framed;

use super::tcp::{FromSocket, Slot, is_open};
use crate::locks::CallError;

/// One connection.
pub struct RespConn(Framed<TcpStream, ValueCodec>);

impl FromSocket for RespConn {
    fn from_socket(socket: TcpStream) -> Self {
        RespConn(Framed::new(socket, ValueCodec::default()))
    }

    fn is_open(&self) -> bool {
        self.0.read_buffer().is_empty() && is_open(self.0.get_ref())
    }
}

impl RespConn {
    /// Sends one encoded command and reads its answer. After an unknown error
    /// drop the connection.
    ///
    /// # Errors
    /// Definite where the server says that it refused the command as a whole.
    pub async fn exchange(&mut self, bytes: Vec<u8>, within: Duration) -> Result<Value, CallError> {
        let both = async {
            self.0.send(bytes).await?;
            match self.0.next().await {
                Some(answer) => answer?.extract_error(),
                None => Err(RedisError::from(std::io::Error::from(
                    std::io::ErrorKind::UnexpectedEof,
                ))),
            }
        };
        match timeout(within, both).await {
            Ok(answer) => answer.map_err(|e| classify(&e)),
            Err(_) => Err(CallError::unknown("timeout")),
        }
    }
}

impl RespConn {
    /// What the server sends next, unasked: for a connection that has subscribed.
    ///
    /// # Errors
    /// Unknown: nothing came in time, or the connection ended.
    pub async fn hear(&mut self, within: Duration) -> Result<Value, CallError> {
        match timeout(within, self.0.next()).await {
            Ok(Some(Ok(message))) => Ok(message),
            Ok(Some(Err(e))) => Err(CallError::unknown(e.to_string())),
            Ok(None) => Err(CallError::unknown("the connection ended")),
            Err(_) => Err(CallError::unknown("timeout")),
        }
    }
}

/// Errors with which Redis refuses a command before it changed anything.
const REFUSALS: &[&str] = &[
    "LOADING",
    "READONLY",
    "MASTERDOWN",
    "MISCONF",
    "NOAUTH",
    "NOPERM",
    "NOREPLICAS",
    "OOM",
    "BUSY",
    "CLUSTERDOWN",
    "MOVED",
    "NOSCRIPT",
];

fn classify(e: &RedisError) -> CallError {
    match e.code() {
        Some(code) if REFUSALS.contains(&code) => CallError::definite(e.to_string()),
        _ => CallError::unknown(e.to_string()),
    }
}

/// One client's way to one server.
pub struct RedisLink {
    slot: Slot<RespConn>,
    timeout: Duration,
}

impl RedisLink {
    pub fn new(addr: String, timeout: Duration) -> Self {
        RedisLink {
            slot: Slot::new(addr, timeout),
            timeout,
        }
    }

    /// Bound of one call.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// A connection on which only the sending of a command is left.
    ///
    /// # Errors
    /// Definite: nothing was sent.
    pub async fn take(&self) -> Result<RespConn, CallError> {
        self.slot.take().await
    }

    /// Keeps a connection from [`RedisLink::take`] on which nothing is outstanding.
    pub fn put(&self, conn: RespConn) {
        self.slot.put(conn);
    }

    /// Sends on a connection from [`RedisLink::take`] and keeps it for later.
    ///
    /// # Errors
    /// See [`RespConn::exchange`].
    pub async fn send(&self, mut conn: RespConn, bytes: Vec<u8>) -> Result<Value, CallError> {
        let answer = conn.exchange(bytes, self.timeout).await;
        if !matches!(answer, Err(CallError::Unknown(_))) {
            self.slot.put(conn);
        }
        answer
    }

    /// One command and its answer.
    ///
    /// # Errors
    /// See [`RespConn::exchange`]; unknown where the answer has another type.
    pub async fn call<T: FromRedisValue>(&self, cmd: &Cmd) -> Result<T, CallError> {
        let conn = self.take().await?;
        let value = self.send(conn, cmd.get_packed_command()).await?;
        T::from_redis_value(value).map_err(|e| CallError::unknown(e.to_string()))
    }
}

/// `EVAL script`, with keys and arguments. Not EVALSHA: its answer NOSCRIPT
/// would make one operation two calls.
pub fn eval(script: &str, keys: &[&str], args: &[&str]) -> Cmd {
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(script).arg(keys.len());
    for word in keys.iter().chain(args) {
        cmd.arg(word);
    }
    cmd
}
