//! The one writer of `history.jsonl`: it gives index and stamp together.

mod folder;
mod runfile;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use fencepost_history::{Event, EventType, Process, Value};
use thiserror::Error;

pub use folder::{FolderError, RunFolder};
pub use runfile::{RunFile, Status, rfc3339};

/// Kept aside so that the end of a run can still be written when the disk is full.
/// The smaller one is for disks that have no room for the larger.
const RESERVES: [i64; 2] = [4 << 20, 256 << 10];

#[derive(Debug, Error)]
pub enum RecordError {
    #[error("cannot write {path}: {cause}")]
    Open { path: String, cause: io::Error },
    #[error("the disk is full while recording {path}; the run ends here and keeps what it has")]
    Full { path: String },
    #[error("cannot write {path}: {cause}; the run ends here and keeps what it has")]
    Write { path: String, cause: io::Error },
}

/// An event before the recorder has given it its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    pub process: Process,
    pub kind: EventType,
    pub f: Arc<str>,
    pub key: Option<Arc<str>>,
    pub value: Value,
    pub error: Option<Arc<str>>,
}

impl Draft {
    /// An event of a named process: always `info`.
    pub fn named(process: &Arc<str>, f: &str, value: Value) -> Self {
        Draft {
            process: Process::Named(process.clone()),
            kind: EventType::Info,
            f: f.into(),
            key: None,
            value,
            error: None,
        }
    }
}

/// Where an event stands in the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    pub index: u64,
    /// Nanoseconds since the run began.
    pub time: i64,
}

/// Appends events to a file, in batches.
pub struct Recorder<W = File> {
    out: W,
    path: PathBuf,
    /// Rendered lines that the OS has not taken yet.
    pending: Vec<u8>,
    started: Instant,
    next: u64,
    last: i64,
    reserve: Option<PathBuf>,
}

impl Recorder<File> {
    /// Creates `history.jsonl` in `dir` and sets a reserve of disk space aside.
    ///
    /// # Errors
    /// When either cannot be written.
    pub fn create(dir: &Path, started: Instant) -> Result<Self, RecordError> {
        let path = dir.join("history.jsonl");
        let open = |path: &Path| {
            OpenOptions::new()
                .create(true)
                .truncate(true)
                .write(true)
                .open(path)
                .map_err(|cause| RecordError::Open {
                    path: path.display().to_string(),
                    cause,
                })
        };
        let out = open(&path)?;
        let reserve = dir.join(".reserve");
        // A file system without fallocate only loses the reserve, not the run.
        let set_aside = |f: &File, size| {
            f.set_len(0).is_ok() && nix::fcntl::posix_fallocate(f, 0, size).is_ok()
        };
        let kept = open(&reserve).is_ok_and(|f| RESERVES.iter().any(|size| set_aside(&f, *size)));
        let mut recorder = Self::over(out, path, started);
        if kept {
            recorder.reserve = Some(reserve);
        } else {
            let _ = std::fs::remove_file(&reserve);
        }
        Ok(recorder)
    }
}

impl<W: Write> Recorder<W> {
    fn over(out: W, path: PathBuf, started: Instant) -> Self {
        Recorder {
            out,
            path,
            pending: Vec::with_capacity(64 << 10),
            started,
            next: 0,
            last: 0,
            reserve: None,
        }
    }

    /// Nanoseconds since the run began.
    pub fn now(&self) -> i64 {
        self.started.elapsed().as_nanos() as i64
    }

    /// Gives the event its index and stamp. It reaches the OS at the next [`flush`](Self::flush).
    pub fn record(&mut self, draft: Draft) -> Event {
        let time = self.now().max(self.last);
        self.last = time;
        let event = Event {
            index: self.next,
            time,
            process: draft.process,
            kind: draft.kind,
            f: draft.f,
            key: draft.key,
            value: draft.value,
            error: draft.error,
        };
        self.next += 1;
        fencepost_history::json::write_event(&mut self.pending, &event);
        event
    }

    /// Stamp of the event recorded last.
    pub fn latest(&self) -> Stamp {
        Stamp {
            index: self.next.saturating_sub(1),
            time: self.last,
        }
    }

    /// Number of events recorded.
    pub fn len(&self) -> u64 {
        self.next
    }

    pub fn is_empty(&self) -> bool {
        self.next == 0
    }

    /// Hands all recorded events to the OS.
    ///
    /// # Errors
    /// Once: when the disk is full or the file cannot be written. What is pending stays
    /// pending; the reserve has been freed, so that a later flush can still succeed.
    pub fn flush(&mut self) -> Result<(), RecordError> {
        let mut done = 0;
        let result = loop {
            if done == self.pending.len() {
                break Ok(());
            }
            match self.out.write(&self.pending[done..]) {
                Ok(0) => break Err(io::Error::from(io::ErrorKind::WriteZero)),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => break Err(e),
            }
        };
        self.pending.drain(..done);
        result.map_err(|cause| {
            self.free_reserve();
            let path = self.path.display().to_string();
            match cause.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    RecordError::Full { path }
                }
                _ => RecordError::Write { path, cause },
            }
        })
    }

    fn free_reserve(&mut self) {
        if let Some(path) = self.reserve.take() {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Frees the reserve and writes what is still pending.
    ///
    /// # Errors
    /// When even now the file cannot be written.
    pub fn close(&mut self) -> Result<(), RecordError> {
        self.free_reserve();
        self.flush()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A disk with room for so many bytes, which can be made larger.
    struct Disk {
        taken: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(self.room - self.taken.len());
            if n == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.taken.extend_from_slice(&bytes[..n]);
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn draft(n: i128) -> Draft {
        Draft::named(&"controller".into(), "phase", Value::Int(n))
    }

    #[test]
    fn index_and_stamp_rise_together() {
        let dir = tempfile::tempdir().unwrap();
        let mut r = Recorder::create(dir.path(), Instant::now()).unwrap();
        assert!(dir.path().join(".reserve").exists());
        let events: Vec<Event> = (0..100).map(|n| r.record(draft(n))).collect();
        assert!(
            events
                .windows(2)
                .all(|w| w[0].index + 1 == w[1].index && w[0].time <= w[1].time)
        );
        r.close().unwrap();
        assert!(!dir.path().join(".reserve").exists());
        let text = std::fs::read_to_string(dir.path().join("history.jsonl")).unwrap();
        assert_eq!(text.lines().count(), 100);
        assert!(text.lines().nth(7).unwrap().starts_with("{\"index\":7,"));
    }

    #[test]
    fn a_full_disk_is_said_once_and_nothing_is_lost_when_room_comes_back() {
        let mut r = Recorder::over(
            Disk {
                taken: vec![],
                room: 150,
            },
            "history.jsonl".into(),
            Instant::now(),
        );
        for n in 0..5 {
            r.record(draft(n));
        }
        let error = r.flush().unwrap_err().to_string();
        assert!(
            error.starts_with("the disk is full while recording history.jsonl"),
            "{error}"
        );
        r.record(draft(5));
        r.out.room = 10_000;
        r.close().unwrap();
        let text = String::from_utf8(std::mem::take(&mut r.out.taken)).unwrap();
        let indexes: Vec<&str> = text
            .lines()
            .map(|l| l.split([':', ',']).nth(1).unwrap())
            .collect();
        assert_eq!(indexes, ["0", "1", "2", "3", "4", "5"]);
    }
}
