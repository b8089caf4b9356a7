//! A started thing: a node, a worker or the witness, as faults see it.

use std::{
    fmt,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    process::{ChildStdin, ChildStdout},
    sync::watch,
};

use super::{namespace::NetNs, register::Born};

/// `node:0`, `worker:1`, `witness`: the words of histories and schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UnitId {
    Node(usize),
    Worker(usize),
    Witness,
}

impl fmt::Display for UnitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(i) => write!(f, "node:{i}"),
            Self::Worker(i) => write!(f, "worker:{i}"),
            Self::Witness => write!(f, "witness"),
        }
    }
}

impl UnitId {
    /// The name without a colon, for files and interfaces: `node-0`.
    #[must_use]
    pub fn file_name(self) -> String {
        self.to_string().replace(':', "-")
    }
}

/// What a fault needs to know of one started thing. The pid changes with a restart; the
/// namespace and the address do not.
#[derive(Debug)]
pub struct Unit {
    id: UnitId,
    name: String,
    addr: Ipv4Addr,
    /// Kept open, so that it outlives its processes.
    netns: Option<Arc<NetNs>>,
    netns_path: Option<PathBuf>,
    data_dir: Option<PathBuf>,
    main: Mutex<Option<Born>>,
}

impl Unit {
    pub(crate) fn new(id: UnitId, name: String, addr: Ipv4Addr, netns: Option<Arc<NetNs>>) -> Self {
        Self {
            id,
            name,
            addr,
            netns_path: netns.as_ref().map(|n| n.path()),
            netns,
            data_dir: None,
            main: Mutex::new(None),
        }
    }

    pub(crate) fn with_data_dir(mut self, dir: PathBuf) -> Self {
        self.data_dir = Some(dir);
        self
    }

    pub(crate) fn set_pid(&self, pid: Option<i32>) {
        *self.main.lock().unwrap_or_else(PoisonError::into_inner) = pid.and_then(Born::of);
    }

    #[must_use]
    pub fn id(&self) -> UnitId {
        self.id
    }

    /// The name that a system gave its node (`redis-0`), or `worker-1`, `witness`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn addr(&self) -> Ipv4Addr {
        self.addr
    }

    /// A path that can be opened and given to `setns`, valid while the host lives even if the
    /// process is dead. None where namespaces are refused: network faults do not apply then.
    #[must_use]
    pub fn netns(&self) -> Option<&Path> {
        self.netns_path.as_deref()
    }

    pub(crate) fn namespace(&self) -> Option<&Arc<NetNs>> {
        self.netns.as_ref()
    }

    /// A node's data directory as this process can reach it.
    #[must_use]
    pub fn data_dir(&self) -> Option<&Path> {
        self.data_dir.as_deref()
    }

    /// The main process, by the pid that this machine's `/proc` shows; None while it is down.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        let main = *self.main.lock().unwrap_or_else(PoisonError::into_inner);
        main.filter(|m| m.lives()).map(|m| m.pid)
    }

    /// The main process and everything below it now, parents first.
    #[must_use]
    pub fn pids(&self) -> Vec<i32> {
        self.pid().map(crate::host::proc::tree).unwrap_or_default()
    }
}

/// A started worker or witness.
#[derive(Debug)]
pub struct Process {
    pub unit: Arc<Unit>,
    pub stdin: ChildStdin,
    pub stdout: ChildStdout,
    /// Becomes `Some` when the process was reaped.
    pub exit: watch::Receiver<Option<ExitStatus>>,
}
