//! What a run offers to faults: its processes, and what its system can do.
//!
//! Required: three methods. Everything else is an optional capability, each a
//! trait of its own that a system implements where it can.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fault::Fut;
use crate::process::{Proc, ProcId};

/// A run as faults see it.
pub trait Env: Send + Sync {
    /// Short id of the run (`[a-z0-9]+`), used in the names of everything that a fault creates.
    fn run_id(&self) -> &str;

    /// Every node and worker that runs now, with current pids. A process that was killed
    /// and not started again is left out.
    fn procs(&self) -> Vec<Proc>;

    /// The lease that the run asks for.
    fn ttl(&self) -> Duration;

    /// The worker that holds `lock` now, as its last acknowledged grant says.
    fn holder(&self, _lock: Option<&str>) -> Option<ProcId> {
        None
    }

    /// A worker whose acquire of `lock` is pending.
    fn waiter(&self, _lock: Option<&str>) -> Option<ProcId> {
        None
    }

    fn restart(&self) -> Option<&dyn Restart> {
        None
    }

    fn leader_hint(&self) -> Option<&dyn LeaderHint> {
        None
    }

    fn transfer_leader(&self) -> Option<&dyn TransferLeader> {
        None
    }

    fn promote(&self) -> Option<&dyn Promote> {
        None
    }

    fn server_clock(&self) -> Option<&dyn ServerClock> {
        None
    }

    fn data_dir(&self) -> Option<&dyn DataDir> {
        None
    }
}

/// What a restarted process finds on its disk.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Data {
    /// As it was when it died.
    #[default]
    Kept,
    /// Empty.
    Wiped,
    /// As it was when [`Restart::snapshot`] was taken.
    Snapshot,
}

/// Can start a process again. The kill itself is done by pid, by the fault.
pub trait Restart: Send + Sync {
    /// Says that `id` is about to be killed, so that its exit counts as expected.
    fn expect_exit(&self, id: ProcId);

    /// Keeps a copy of its data directory for a later start from it.
    fn snapshot(&self, id: ProcId) -> Fut<'_, Result<(), String>>;

    /// Starts it with the same name, address and namespace. Returns when it runs (not
    /// necessarily when it is ready to serve), with its new pid.
    fn start(&self, id: ProcId, data: Data) -> Fut<'_, Result<Proc, String>>;
}

/// Knows which node leads.
pub trait LeaderHint: Send + Sync {
    /// `None` when no node leads or none answers within a second or so.
    fn leader(&self) -> Fut<'_, Option<ProcId>>;
}

/// Can hand leadership over in order.
pub trait TransferLeader: Send + Sync {
    /// Asks the leader to hand over to `to` (the system's choice when `None`).
    fn transfer(&self, to: Option<ProcId>) -> Fut<'_, Result<(), String>>;
}

/// Can make a replica the primary.
pub trait Promote: Send + Sync {
    /// Promotes `to` (the system's choice when `None`). Needs no consent of the old primary.
    fn promote(&self, to: Option<ProcId>) -> Fut<'_, Result<(), String>>;
}

/// Can read a server's own clock through the service.
pub trait ServerClock: Send + Sync {
    /// Wall clock of the server: time since the Unix epoch.
    fn server_time(&self, id: ProcId) -> Fut<'_, Result<Duration, String>>;
}

/// Knows where a node keeps its data.
pub trait DataDir: Send + Sync {
    /// The directory as seen *inside the node's mount namespace*; reached from here through
    /// `/proc/PID/root`.
    fn data_dir(&self, id: ProcId) -> Option<PathBuf>;
}
