//! A group on one node without replication: entries are applied once they are on this node's disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{oneshot, watch};

use super::driver::{Backend, ProposeError, Role};
use super::{Applier, Batch};
use crate::wal::{Flusher, Job, Record, RecordKind};

/// One group's log on this node alone.
pub struct Solo {
    group: u32,
    flusher: Flusher,
    applier: Arc<Applier>,
    index: AtomicU64,
    role: watch::Sender<Role>,
}

impl Solo {
    /// Goes on after entry `last`; leads from now on in `term`.
    pub fn new(
        group: u32,
        node: u64,
        flusher: Flusher,
        applier: Applier,
        last: u64,
        term: u64,
    ) -> Self {
        let (role, _) = watch::channel(Role {
            leading: Some(term),
            leader: Some(node),
        });
        Solo {
            group,
            flusher,
            applier: Arc::new(applier),
            index: AtomicU64::new(last),
            role,
        }
    }
}

impl Backend for Solo {
    fn propose(
        &self,
        batch: Batch,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<(), ProposeError>> + Send>> {
        let (tx, rx) = oneshot::channel();
        match postcard::to_stdvec(&batch) {
            Ok(payload) => {
                let index = self.index.fetch_add(1, Ordering::Relaxed) + 1;
                let record = Record {
                    group: self.group,
                    kind: RecordKind::Entry,
                    index,
                    payload,
                };
                let applier = Arc::clone(&self.applier);
                let done = Box::new(move |result: Result<(), String>| {
                    let outcome = result.map(|()| applier.apply(index, &batch));
                    let _ = tx.send(outcome.map_err(|_| ProposeError::Unknown("the disk failed")));
                });
                self.flusher.submit(Job {
                    records: vec![record],
                    done,
                });
            }
            Err(_) => drop(tx.send(Err(ProposeError::NotLeader(None)))),
        }
        Box::pin(async move {
            rx.await
                .unwrap_or(Err(ProposeError::Unknown("the log stopped")))
        })
    }

    fn confirm(&self) -> std::pin::Pin<Box<dyn Future<Output = Result<(), ProposeError>> + Send>> {
        Box::pin(async { Ok(()) })
    }

    fn role(&self) -> watch::Receiver<Role> {
        self.role.subscribe()
    }
}
