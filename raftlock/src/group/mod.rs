//! One group on one node: the driver that turns requests into log entries and timers into expiries, and the
//! applier that feeds committed entries to the machine and its outputs to clients.

mod applier;
mod driver;
#[cfg(test)]
mod driver_tests;
mod reply;
mod timers;
mod watch;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

pub use applier::{Applier, Hub, Notice};
pub use driver::{Backend, Driver, ProposeError};
pub use reply::{Answer, ReplyTo};
pub use watch::{Happened, Watch, What};

use crate::machine::{Machine, Op, SessionId};

/// The content of one log entry.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Batch {
    /// The node that proposed it.
    pub origin: u64,
    /// Drawn when that node started, so that a batch from before a restart is not taken for a new one.
    pub boot: u64,
    /// The proposer's number of the batch.
    pub sequence: u64,
    /// The proposer's wall clock, ms since the Unix epoch; for display.
    pub at_ms: u64,
    /// The operations.
    pub ops: Vec<Op>,
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "batch {} of node {} with {} operations",
            self.sequence,
            self.origin,
            self.ops.len()
        )
    }
}

/// A request to the driver.
pub enum Cmd {
    /// Put an operation in the log and answer with the machine's reply.
    Propose { op: Op, to: ReplyTo },
    /// Prolong a session; answered after the leadership was confirmed.
    Keepalive { session: SessionId, to: ReplyTo },
    /// Answer once the leadership is confirmed by a round begun after this request: a linearizable read follows.
    Confirm { to: ReplyTo },
}

impl Cmd {
    fn to(self) -> ReplyTo {
        match self {
            Cmd::Propose { to, .. } | Cmd::Keepalive { to, .. } | Cmd::Confirm { to } => to,
        }
    }
}

/// What the driver, the applier and readers share.
pub struct Shared {
    machine: Mutex<Machine>,
    hub: Mutex<Hub>,
    /// What happens, for metrics and watchers.
    pub watch: Watch,
}

impl Shared {
    /// Shares a recovered machine.
    pub fn new(machine: Machine) -> Arc<Self> {
        Arc::new(Shared {
            machine: Mutex::new(machine),
            hub: Mutex::new(Hub::default()),
            watch: Watch::default(),
        })
    }

    /// The machine. Held briefly; never across an await.
    pub fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those who wait for answers. Never locked together with the machine.
    pub fn hub(&self) -> MutexGuard<'_, Hub> {
        self.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way into a group.
#[derive(Clone)]
pub struct Group {
    /// Its number.
    pub id: u32,
    /// The shared state.
    pub shared: Arc<Shared>,
    tx: mpsc::Sender<Cmd>,
}

/// Requests that may wait for a driver before new ones are refused.
const INBOX: usize = 65_536;

impl Group {
    /// A handle and the inbox for the driver.
    pub fn new(id: u32, shared: Arc<Shared>) -> (Self, mpsc::Receiver<Cmd>) {
        let (tx, rx) = mpsc::channel(INBOX);
        (Group { id, shared, tx }, rx)
    }

    /// Hands a request to the driver. A full inbox or a stopped driver is answered at once.
    pub fn send(&self, cmd: Cmd) {
        if let Err(error) = self.tx.try_send(cmd) {
            let (cmd, answer) = match error {
                mpsc::error::TrySendError::Full(cmd) => (cmd, Answer::Overloaded),
                mpsc::error::TrySendError::Closed(cmd) => (cmd, Answer::Stopped),
            };
            cmd.to().send(answer);
        }
    }

    /// Sends a request built around a one-shot reply and awaits the answer.
    pub async fn call(&self, build: impl FnOnce(ReplyTo) -> Cmd) -> Answer {
        let (tx, rx) = oneshot::channel();
        self.send(build(ReplyTo::One(tx)));
        rx.await.unwrap_or(Answer::Unknown("the node is stopping"))
    }
}
