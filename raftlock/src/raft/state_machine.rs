//! The lock machine, as openraft wants it.

use std::io;
use std::sync::Arc;

use futures_util::{Stream, TryStreamExt};
use openraft::entry::EntryPayload;
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::type_config::alias::StoredMembershipOf;
use openraft::{OptionalSend, RaftSnapshotBuilder};

use super::snapshot::SnapshotFile;
use super::{LogId, Snapshot, SnapshotData, SnapshotMeta, Types};
use crate::backup::Backup;
use crate::group::{Applier, Shared};
use crate::machine::Machine;

type Membership = StoredMembershipOf<Types>;

/// One group's machine on this node.
pub struct StateMachine {
    shared: Arc<Shared>,
    applier: Applier,
    file: SnapshotFile,
    applied: Option<LogId>,
    membership: Membership,
}

/// Reads a group's snapshot, or begins with a backup or nothing: the machine, and what it covers.
pub fn recover(
    file: &SnapshotFile,
    group: u32,
    beginning: Option<&Backup>,
) -> io::Result<(Machine, SnapshotMeta)> {
    let Some(snapshot) = file.load()? else {
        let machine = match beginning {
            Some(backup) => backup.machine(group)?,
            None => Machine::new(),
        };
        return Ok((machine, SnapshotMeta::default()));
    };
    let machine = Machine::from_bytes(&snapshot.snapshot).map_err(io::Error::other)?;
    Ok((machine, snapshot.meta))
}

impl StateMachine {
    /// Goes on from a recovered machine.
    pub fn new(
        shared: Arc<Shared>,
        applier: Applier,
        file: SnapshotFile,
        meta: SnapshotMeta,
    ) -> Self {
        StateMachine {
            shared,
            applier,
            file,
            applied: meta.last_log_id,
            membership: meta.last_membership,
        }
    }
}

impl RaftStateMachine<Types> for StateMachine {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, Membership)> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            match entry.payload {
                EntryPayload::Blank => {}
                EntryPayload::Normal(batch) => self.applier.apply(entry.log_id.index, &batch),
                EntryPayload::Membership(membership) => {
                    self.membership = Membership::new(Some(entry.log_id), membership);
                }
            }
            self.applied = Some(entry.log_id);
            if let Some(responder) = responder {
                responder.send(());
            }
        }
        Ok(())
    }

    /// Copies the state between two entries; writing it goes on beside.
    async fn get_snapshot_builder(&mut self) -> Builder {
        let meta = SnapshotMeta {
            last_log_id: self.applied,
            last_membership: self.membership.clone(),
        };
        Builder {
            meta,
            machine: self.shared.machine().clone(),
            file: self.file.clone(),
        }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: SnapshotData,
    ) -> io::Result<()> {
        let (file, covers) = (self.file.clone(), meta.clone());
        let read = beside(&self.file, move || {
            let machine = Machine::from_bytes(&snapshot).map_err(io::Error::other)?;
            file.save(&covers, &snapshot)?;
            Ok(machine)
        });
        let machine = read.await?;
        let before = std::mem::replace(&mut *self.shared.machine(), machine);
        beside(&self.file, move || {
            drop(before);
            Ok(())
        })
        .await?;
        self.applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        let file = self.file.clone();
        beside(&self.file, move || file.load()).await
    }
}

/// Does what takes long for a large machine where it holds up nothing else.
async fn beside<T: Send + 'static>(
    file: &SnapshotFile,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    if file.simulated() {
        return work();
    }
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(io::Error::other)?
}

/// A snapshot that is being written.
pub struct Builder {
    meta: SnapshotMeta,
    machine: Machine,
    file: SnapshotFile,
}

impl RaftSnapshotBuilder<Types> for Builder {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        let machine = std::mem::take(&mut self.machine);
        let (file, meta) = (self.file.clone(), self.meta.clone());
        let writing = beside(&self.file, move || {
            let bytes = machine.to_bytes().map_err(io::Error::other)?;
            // It keeps copies of all that has changed since.
            drop(machine);
            file.save(&meta, &bytes)?;
            Ok(Arc::new(bytes))
        });
        Ok(Snapshot {
            meta: self.meta.clone(),
            snapshot: writing.await?,
        })
    }
}
