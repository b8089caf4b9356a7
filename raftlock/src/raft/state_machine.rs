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
        let bytes = self.shared.machine().to_bytes();
        Builder {
            meta,
            bytes: bytes.map_err(|error| error.to_string()),
            file: self.file.clone(),
        }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: SnapshotData,
    ) -> io::Result<()> {
        let machine = Machine::from_bytes(&snapshot).map_err(io::Error::other)?;
        self.file.save(meta, &snapshot)?;
        *self.shared.machine() = machine;
        self.applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        self.file.load()
    }
}

/// A snapshot that is being written.
pub struct Builder {
    meta: SnapshotMeta,
    bytes: Result<Vec<u8>, String>,
    file: SnapshotFile,
}

impl RaftSnapshotBuilder<Types> for Builder {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        let bytes = std::mem::replace(&mut self.bytes, Err("already built".to_owned()))
            .map_err(io::Error::other)?;
        let (file, meta, bytes) = (self.file.clone(), self.meta.clone(), Arc::new(bytes));
        if file.simulated() {
            file.save(&meta, &bytes)?;
        } else {
            let written = Arc::clone(&bytes);
            let saving = tokio::task::spawn_blocking(move || file.save(&meta, &written));
            saving.await.map_err(io::Error::other)??;
        }
        Ok(Snapshot {
            meta: self.meta.clone(),
            snapshot: bytes,
        })
    }
}
