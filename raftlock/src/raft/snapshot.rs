//! Snapshots on disk: one file a group, replaced as a whole.
//!
//! File: magic (8 bytes), CRC-32 of the rest (4), length of the meta data (4), meta data, machine. Little endian.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Snapshot, SnapshotMeta};
use crate::wal::{Dir, RESTORE};

const MAGIC: &[u8; 8] = b"RLSNAP02";
const HEAD: usize = 16;

/// The one snapshot of a group.
#[derive(Clone)]
pub struct SnapshotFile {
    dir: Arc<dyn Dir>,
    name: String,
    covered: Covered,
    saving: Arc<Mutex<()>>,
}

/// The first log index that the snapshot on disk does not cover; 0 without one.
#[derive(Clone, Default)]
pub struct Covered(Arc<AtomicU64>);

/// The first log index that a snapshot does not cover.
fn next(meta: &SnapshotMeta) -> u64 {
    meta.last_log_id.map_or(0, |last| last.index + 1)
}

impl Covered {
    /// Is the entry at `index` in the snapshot on disk?
    pub fn has(&self, index: u64) -> bool {
        index < self.0.load(Ordering::Acquire)
    }

    fn set(&self, meta: &SnapshotMeta) {
        self.0.store(next(meta), Ordering::Release);
    }
}

impl SnapshotFile {
    /// The file of a group in the node's directory.
    pub fn new(dir: Arc<dyn Dir>, group: u32) -> Self {
        SnapshotFile {
            dir,
            name: format!("snapshot-{group}.bin"),
            covered: Covered::default(),
            saving: Arc::default(),
        }
    }

    /// How far the snapshot on disk goes, as it changes.
    pub fn covered(&self) -> Covered {
        self.covered.clone()
    }

    /// Replaces the snapshot; durable when this returns. One that goes less far than the one on disk changes nothing: it
    /// was begun before that one was received.
    pub fn save(&self, meta: &SnapshotMeta, machine: &[u8]) -> io::Result<()> {
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        if self.covered.has(next(meta)) {
            return Ok(());
        }
        let covered = meta;
        let meta = postcard::to_stdvec(meta).map_err(io::Error::other)?;
        let mut bytes = Vec::with_capacity(HEAD + meta.len() + machine.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&(meta.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&meta);
        bytes.extend_from_slice(machine);
        let crc = crc32fast::hash(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        self.dir.replace(&self.name, &bytes)?;
        self.covered.set(covered);
        Ok(())
    }

    /// Must everything run on the one thread of a simulation?
    pub fn simulated(&self) -> bool {
        self.dir.simulated()
    }

    /// The snapshot, if there is one. A damaged one is an error: the log before it is gone.
    pub fn load(&self) -> io::Result<Option<Snapshot>> {
        let bytes = match self.dir.read(&self.name) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let snapshot = parse(&bytes).ok_or_else(|| {
            let name = &self.name;
            io::Error::other(format!(
                "{name} is damaged, or of another version; {RESTORE}"
            ))
        })?;
        self.covered.set(&snapshot.meta);
        Ok(Some(snapshot))
    }
}

fn parse(bytes: &[u8]) -> Option<Snapshot> {
    let head = bytes.get(..HEAD)?;
    let crc = u32::from_le_bytes(head[8..12].try_into().ok()?);
    if head[..8] != *MAGIC || crc32fast::hash(&bytes[12..]) != crc {
        return None;
    }
    let length = u32::from_le_bytes(head[12..16].try_into().ok()?) as usize;
    let meta = postcard::from_bytes(bytes.get(HEAD..HEAD + length)?).ok()?;
    Some(Snapshot {
        meta,
        snapshot: Arc::new(bytes[HEAD + length..].to_vec()),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::LogId;
    use super::*;
    use crate::wal::RealDir;

    #[test]
    fn one_that_goes_less_far_changes_nothing() {
        let temporary = tempfile::tempdir().unwrap();
        let dir: Arc<dyn Dir> = Arc::new(RealDir::open(temporary.path()).unwrap());
        let file = SnapshotFile::new(Arc::clone(&dir), 0);
        let at = |index: Option<u64>| SnapshotMeta {
            last_log_id: index.map(|index| LogId::new_term_index(3, index)),
            ..SnapshotMeta::default()
        };
        file.save(&at(None), b"nothing").unwrap();
        file.save(&at(Some(67)), b"received").unwrap();
        for older in [None, Some(0), Some(66)] {
            file.save(&at(older), b"begun before").unwrap();
            assert_eq!(*file.load().unwrap().unwrap().snapshot, b"received");
        }
        file.save(&at(Some(68)), b"later").unwrap();
        assert_eq!(*file.load().unwrap().unwrap().snapshot, b"later");
    }

    #[test]
    fn saved_loaded_and_refused_when_damaged() {
        let temporary = tempfile::tempdir().unwrap();
        let dir: Arc<dyn Dir> = Arc::new(RealDir::open(temporary.path()).unwrap());
        let file = SnapshotFile::new(Arc::clone(&dir), 3);
        assert!(file.load().unwrap().is_none());
        file.save(&SnapshotMeta::default(), b"state").unwrap();
        assert_eq!(*file.load().unwrap().unwrap().snapshot, b"state");
        let mut bytes = dir.read("snapshot-3.bin").unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        dir.replace("snapshot-3.bin", &bytes).unwrap();
        assert!(file.load().is_err());
    }
}
