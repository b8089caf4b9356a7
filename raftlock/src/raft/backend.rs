//! A group's Raft, as the driver sees it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ClientWriteError, RaftError};
use openraft::{ReadPolicy, ServerState};
use tokio::sync::watch;

use super::Replica;
use crate::flaw::{self, Flaw};
use crate::group::{Backend, Batch, ProposeError};
use crate::host;

/// Proposes through Raft and follows its role.
pub struct RaftBackend {
    replica: Replica,
    leading: watch::Receiver<Option<u64>>,
}

impl RaftBackend {
    /// Follows `replica`; the task that does so ends with its Raft.
    pub fn new(replica: Replica, tasks: &mut tokio::task::JoinSet<()>) -> Self {
        let (tx, leading) = watch::channel(None);
        let mut metrics = replica.server_metrics();
        tasks.spawn(host::scoped(async move {
            loop {
                let now = {
                    let seen = metrics.borrow_watched();
                    let leads = seen.state == ServerState::Leader && seen.vote.committed;
                    leads.then_some(seen.vote.leader_id.term)
                };
                tx.send_if_modified(|leading| std::mem::replace(leading, now) != now);
                if metrics.changed().await.is_err() {
                    return;
                }
            }
        }));
        RaftBackend { replica, leading }
    }
}

type Job = Pin<Box<dyn Future<Output = Result<(), ProposeError>> + Send>>;

impl Backend for RaftBackend {
    fn propose(&self, batch: Batch) -> Job {
        let raft = self.replica.clone();
        Box::pin(async move {
            match raft.client_write(Arc::new(batch)).await {
                Ok(_) => Ok(()),
                // Rejected before it was appended: surely no effect.
                Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward))) => {
                    Err(ProposeError::NotLeader(forward.leader_id))
                }
                Err(RaftError::APIError(_)) => Err(ProposeError::Unknown(
                    "the leader changed before it was committed",
                )),
                Err(RaftError::Fatal(_)) => Err(ProposeError::Unknown(
                    "this replica stopped before it was committed",
                )),
            }
        })
    }

    fn confirm(&self) -> Job {
        let raft = self.replica.clone();
        if flaw::active(Flaw::KeepaliveWithoutQuorum) {
            return Box::pin(async { Ok(()) });
        }
        Box::pin(async move {
            let linearizer = raft.get_read_linearizer(ReadPolicy::ReadIndex).await;
            let linearizer = linearizer.map_err(|_| ProposeError::NotLeader(None))?;
            linearizer
                .await_ready(&raft)
                .await
                .map_err(|_| ProposeError::NotLeader(None))?;
            Ok(())
        })
    }

    fn leading(&self) -> watch::Receiver<Option<u64>> {
        self.leading.clone()
    }

    fn leader(&self) -> Option<u64> {
        self.replica.leader_elsewhere()
    }
}
