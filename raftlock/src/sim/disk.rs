//! A disk that loses what was not synced.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::RngExt;
use rand::rngs::SmallRng;

use crate::flaw::{self, Flaw};
use crate::wal::{Dir, LogFile};

#[derive(Default)]
struct File {
    bytes: Vec<u8>,
    unsynced: Vec<(u64, Vec<u8>)>,
}

/// A replica's disk; survives its crashes.
#[derive(Default)]
pub struct SimDir {
    files: Arc<Mutex<BTreeMap<String, File>>>,
}

impl SimDir {
    fn files(&self) -> MutexGuard<'_, BTreeMap<String, File>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Power cut: unsynced writes reach the disk whole, in part or not at all.
    pub fn crash(&self, rng: &mut SmallRng) {
        for file in self.files().values_mut() {
            for (offset, bytes) in std::mem::take(&mut file.unsynced) {
                let kept = match rng.random_range(0..3) {
                    0 => 0,
                    1 => rng.random_range(0..=bytes.len()),
                    _ if flaw::active(Flaw::SkipSync) => 0,
                    _ => bytes.len(),
                };
                put(&mut file.bytes, offset, &bytes[..kept]);
                if kept < bytes.len() {
                    break;
                }
            }
        }
    }
}

fn put(into: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let end = offset as usize + bytes.len();
    if into.len() < end {
        into.resize(end, 0);
    }
    into[offset as usize..end].copy_from_slice(bytes);
}

impl Dir for SimDir {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files().keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let files = self.files();
        let file = files
            .get(name)
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let mut bytes = file.bytes.clone();
        for (offset, written) in &file.unsynced {
            put(&mut bytes, *offset, written);
        }
        Ok(bytes)
    }

    fn open(&self, name: &str, _size: u64) -> io::Result<Box<dyn LogFile>> {
        self.files().entry(name.to_owned()).or_default();
        Ok(Box::new(SimFile {
            files: Arc::clone(&self.files),
            name: name.to_owned(),
        }))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.files().insert(
            name.to_owned(),
            File {
                bytes: bytes.to_vec(),
                unsynced: Vec::new(),
            },
        );
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files().remove(name);
        Ok(())
    }

    fn simulated(&self) -> bool {
        true
    }
}

struct SimFile {
    files: Arc<Mutex<BTreeMap<String, File>>>,
    name: String,
}

impl SimFile {
    fn with<T>(&self, act: impl FnOnce(&mut File) -> T) -> T {
        act(self
            .files
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(self.name.clone())
            .or_default())
    }
}

impl LogFile for SimFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.with(|file| file.unsynced.push((offset, bytes.to_vec())));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        if flaw::active(Flaw::SkipSync) {
            return Ok(());
        }
        self.with(|file| {
            for (offset, bytes) in std::mem::take(&mut file.unsynced) {
                put(&mut file.bytes, offset, &bytes);
            }
        });
        Ok(())
    }
}
