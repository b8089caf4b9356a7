//! The next segment, filled with zeros beside the work.
//!
//! A sync of a file that is only overwritten is a flush of the disk; where blocks are new to the file, also those that
//! were only reserved, the file system's journal is written too, which takes about twice as long.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

const PIECE: usize = 256 << 10;
/// Between two pieces, for the log's own syncs.
const PAUSE: Duration = Duration::from_millis(4);
/// Room that is left on the disk: what the replica has to write meanwhile must not fail for what it may want later.
const LEFT: u64 = 4 << 20;

/// A file in the making, or made.
#[derive(Debug)]
pub struct Spare {
    path: PathBuf,
    making: Mutex<Option<Making>>,
    /// Bytes of the disk that it does not take.
    left: u64,
    /// Nobody wants it any more.
    over: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Making {
    size: u64,
    thread: JoinHandle<io::Result<()>>,
}

impl Spare {
    /// None yet. What an earlier process left is of no use: it may be half made.
    pub fn new(path: PathBuf) -> io::Result<Self> {
        remove(&path)?;
        Ok(Spare {
            path,
            making: Mutex::default(),
            left: LEFT,
            over: Arc::default(),
        })
    }

    /// Begins to make a file of `size` zeros, unless there is one.
    pub fn prepare(&self, size: u64) {
        let mut making = self.making();
        if making.is_some() {
            return;
        }
        let (path, left, over) = (self.path.clone(), self.left, Arc::clone(&self.over));
        let make = move || {
            let slowly = |file: &File| {
                // Not all at the end, where a sync of the log would wait behind it.
                file.sync_data()?;
                if free(file)? < left {
                    return Err(io::Error::from(io::ErrorKind::StorageFull));
                }
                std::thread::sleep(PAUSE);
                match over.load(Ordering::Relaxed) {
                    true => Err(io::Error::from(io::ErrorKind::Interrupted)),
                    false => Ok(()),
                }
            };
            let made = File::create(&path).and_then(|file| zeros(&file, 0..size, slowly));
            if let Err(error) = &made {
                // The disk may be full: the room is wanted elsewhere.
                let _ = remove(&path);
                if error.kind() != io::ErrorKind::Interrupted {
                    tracing::warn!(%error, "cannot make room for the log ahead; this node stops when it has no more");
                }
            }
            made
        };
        let thread = std::thread::Builder::new().name("raftlock-spare".to_owned());
        // Without a thread the next segment is made when it is wanted.
        *making = thread
            .spawn(make)
            .ok()
            .map(|thread| Making { size, thread });
    }

    /// Moves the file to `target`, waiting until it is made; false if there is none.
    pub fn take(&self, target: &Path, size: u64) -> io::Result<bool> {
        let Some(made) = self.making().take() else {
            return Ok(false);
        };
        if !matches!(made.thread.join(), Ok(Ok(()))) || made.size != size {
            return Ok(false);
        }
        fs::rename(&self.path, target)?;
        Ok(true)
    }

    fn making(&self) -> MutexGuard<'_, Option<Making>> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(making) = self.making().take() {
            let _ = making.thread.join();
            let _ = remove(&self.path);
        }
    }
}

/// Writes zeros to these offsets and makes them durable; `between` is called after each piece, and ends it by an error.
pub fn zeros(
    file: &File,
    offsets: Range<u64>,
    between: impl Fn(&File) -> io::Result<()>,
) -> io::Result<()> {
    let piece = vec![0; PIECE];
    let mut at = offsets.start;
    while at < offsets.end {
        let length = piece.len().min((offsets.end - at) as usize);
        file.write_all_at(&piece[..length], at)?;
        at += length as u64;
        between(file)?;
    }
    file.sync_all()
}

/// Bytes that may still be written to the file's disk.
fn free(file: &File) -> io::Result<u64> {
    // SAFETY: all zeros are a valid statvfs.
    let mut disk: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and `disk` valid for the length of the call.
    match unsafe { libc::fstatvfs(file.as_raw_fd(), &mut disk) } {
        0 => Ok(disk.f_bavail.saturating_mul(disk.f_frsize)),
        _ => Err(io::Error::last_os_error()),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const SIZE: u64 = (PIECE * 2 + 100) as u64;

    #[test]
    fn a_file_of_zeros_is_ready_when_it_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let (spare, target) = (dir.path().join("spare"), dir.path().join("log"));
        fs::write(&spare, "left by another").unwrap();
        let stock = Spare::new(spare.clone()).unwrap();
        assert!(!stock.take(&target, SIZE).unwrap() && !target.exists());
        stock.prepare(SIZE);
        assert!(stock.take(&target, SIZE).unwrap());
        assert_eq!(fs::read(&target).unwrap(), vec![0; SIZE as usize]);
        stock.prepare(SIZE);
        assert!(!stock.take(&target, SIZE + 1).unwrap(), "of another size");
        stock.prepare(SIZE);
        drop(stock);
        assert!(!spare.exists(), "nobody works in the directory any more");
    }

    #[test]
    fn the_last_of_the_disk_is_left_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("spare");
        let mut stock = Spare::new(path.clone()).unwrap();
        stock.left = u64::MAX;
        stock.prepare(SIZE);
        assert!(!stock.take(&dir.path().join("log"), SIZE).unwrap());
        assert!(!path.exists(), "what was begun is given back");
    }

    #[test]
    fn where_none_can_be_made_there_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let stock = Spare::new(dir.path().join("gone/spare")).unwrap();
        stock.prepare(SIZE);
        assert!(!stock.take(&dir.path().join("log"), SIZE).unwrap());
    }
}
