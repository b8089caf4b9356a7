//! A simulated client's connection: lines to the replica that it takes for the leader.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::net::{self, SimStream};
use super::{CLIENT_PORT, REPLICAS};

const CONNECT: Duration = Duration::from_millis(300);

struct Open {
    reader: Lines<BufReader<ReadHalf<SimStream>>>,
    writer: WriteHalf<SimStream>,
}

/// The connection, if there is one, and whom it goes to.
pub struct Wire {
    open: Option<Open>,
    node: u64,
    turns: u64,
}

impl Wire {
    /// Not connected; begins with this replica.
    pub fn new(node: u64) -> Self {
        Wire {
            open: None,
            node,
            turns: 0,
        }
    }

    /// Connections left so far: what was asked on one of them is not answered any more.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Leaves this replica for another.
    pub fn turn_to(&mut self, node: u64) {
        self.open = None;
        self.node = node;
        self.turns += 1;
    }

    /// Leaves this replica for the next.
    pub fn turn(&mut self) {
        self.turn_to(self.node % REPLICAS + 1);
    }

    /// Sends a line; false if that did not work and surely did nothing, in which case another replica is next.
    pub async fn send(&mut self, line: &Value) -> bool {
        if self.open.is_none() {
            let Ok(Ok(stream)) =
                timeout(CONNECT, net::connect(self.node as u16, CLIENT_PORT)).await
            else {
                self.turn();
                return false;
            };
            let (reader, writer) = tokio::io::split(stream);
            let reader = BufReader::new(reader).lines();
            self.open = Some(Open { reader, writer });
        }
        let Some(open) = &mut self.open else {
            return false;
        };
        if open
            .writer
            .write_all(format!("{line}\n").as_bytes())
            .await
            .is_err()
        {
            self.turn();
            return false;
        }
        true
    }

    /// The next line that comes; `None` when the connection broke. Never resolves without one.
    pub async fn next(&mut self) -> Option<Value> {
        let Some(open) = &mut self.open else {
            return std::future::pending().await;
        };
        let line = open.reader.next_line().await.ok().flatten();
        let value = line.and_then(|line| serde_json::from_str(&line).ok());
        if value.is_none() {
            self.turn();
        }
        value
    }
}
