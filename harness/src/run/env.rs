//! The run as faults see it: its processes, and what its system can do.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fencepost_nemesis::env::{Data, DataDir, Restart};
use fencepost_nemesis::env::{LeaderHint, Promote, ServerClock, TransferLeader};
use fencepost_nemesis::{Env, Fut, Members, Proc, ProcId};

use super::core::{Board, Command, CoreHandle};
use super::crew::Crew;
use crate::host::{DataFate, Host, Unit};
use crate::system::Service;

/// Label of the copy that a restart from a snapshot goes back to.
const SNAPSHOT: &str = "fault";

pub struct RunEnv {
    pub run_id: String,
    pub ttl: Duration,
    pub host: Arc<dyn Host>,
    pub nodes: Vec<Arc<Unit>>,
    /// Where the nodes' output goes.
    pub logs: PathBuf,
    /// TCP port of each node.
    pub ports: Vec<Option<u16>>,
    pub crew: Arc<Crew>,
    pub service: Service,
    pub board: Arc<Board>,
    pub core: CoreHandle,
    /// Nodes that a fault has killed.
    pub down: Mutex<BTreeSet<u32>>,
}

impl RunEnv {
    fn node(&self, index: usize) -> Option<Proc> {
        let unit = self.nodes.get(index)?;
        let id = ProcId::Node(u32::try_from(index).ok()?);
        proc_of(id, unit, self.ports.get(index).copied().flatten())
    }

    /// The nodes that have ended without a fault's doing.
    pub fn dead_nodes(&self) -> Vec<usize> {
        // Held throughout: a node that a fault starts again is alive before it is no longer noted as down.
        let down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        let dead = |(n, u): &(usize, &Arc<Unit>)| u.pid().is_none() && !down.contains(&(*n as u32));
        self.nodes
            .iter()
            .enumerate()
            .filter(dead)
            .map(|(n, _)| n)
            .collect()
    }
}

/// A unit that runs, as a fault's target.
pub fn proc_of(id: ProcId, unit: &Unit, port: Option<u16>) -> Option<Proc> {
    Some(Proc {
        id,
        root: unit.pid()?,
        members: Members::Tree,
        netns: unit.netns().map(PathBuf::from),
        addr: Some(IpAddr::V4(unit.addr())),
        port,
    })
}

impl Env for RunEnv {
    fn run_id(&self) -> &str {
        &self.run_id
    }

    fn procs(&self) -> Vec<Proc> {
        let nodes = (0..self.nodes.len()).filter_map(|n| self.node(n));
        nodes.chain(self.crew.procs()).collect()
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }

    fn holder(&self, lock: Option<&str>) -> Option<ProcId> {
        self.board.holder(lock).map(ProcId::Worker)
    }

    fn waiter(&self, lock: Option<&str>) -> Option<ProcId> {
        self.board.waiter(lock).map(ProcId::Worker)
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }

    fn leader_hint(&self) -> Option<&dyn LeaderHint> {
        self.service.leader_hint.as_deref()
    }

    fn transfer_leader(&self) -> Option<&dyn TransferLeader> {
        self.service.transfer_leader.as_deref()
    }

    fn promote(&self) -> Option<&dyn Promote> {
        self.service.promote.as_deref()
    }

    fn server_clock(&self) -> Option<&dyn ServerClock> {
        self.service.server_clock.as_deref()
    }

    fn data_dir(&self) -> Option<&dyn DataDir> {
        Some(self)
    }
}

impl DataDir for RunEnv {
    fn data_dir(&self, id: ProcId) -> Option<PathBuf> {
        match id {
            ProcId::Node(n) => Some(self.host.site().node_data_dir(n as usize).into()),
            ProcId::Worker(_) => None,
        }
    }
}

impl Restart for RunEnv {
    fn expect_exit(&self, id: ProcId) {
        match id {
            ProcId::Worker(w) => self.core.tell(Command::ExpectExit { worker: w as usize }),
            ProcId::Node(n) => {
                self.down
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(n);
            }
        }
    }

    fn snapshot(&self, id: ProcId) -> Fut<'_, Result<(), String>> {
        Box::pin(async move {
            match id {
                ProcId::Node(n) => self
                    .host
                    .snapshot_node(n as usize, SNAPSHOT)
                    .await
                    .map_err(|e| e.to_string()),
                ProcId::Worker(_) => Err(format!("{id} keeps no data")),
            }
        })
    }

    fn start(&self, id: ProcId, data: Data) -> Fut<'_, Result<Proc, String>> {
        Box::pin(async move {
            let gone = || format!("{id} ended again at once; see its log");
            let n = match id {
                ProcId::Worker(w) => {
                    self.crew.start(w as usize, &self.core).await?;
                    return self.crew.procs().find(|p| p.id == id).ok_or_else(gone);
                }
                ProcId::Node(n) => n,
            };
            let fate = match data {
                Data::Kept => DataFate::Kept,
                Data::Wiped => DataFate::Wiped,
                Data::Snapshot => DataFate::Snapshot(SNAPSHOT.into()),
            };
            self.host
                .restart_node(n as usize, fate)
                .await
                .map_err(|e| e.to_string())?;
            self.down
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(&n);
            self.node(n as usize).ok_or_else(gone)
        })
    }
}
