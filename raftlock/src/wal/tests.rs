#![allow(clippy::unwrap_used)]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::*;

fn open(path: &Path, segment_bytes: u64) -> Result<(Wal, Vec<Record>), WalError> {
    let dir = Arc::new(RealDir::open(path).unwrap());
    Wal::open(
        dir,
        WalOptions {
            segment_bytes,
            sync: true,
        },
    )
}

fn entry(index: u64) -> Record {
    Record {
        group: 0,
        kind: RecordKind::Entry,
        index,
        payload: vec![index as u8; 40],
    }
}

#[test]
fn records_come_back_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, found) = open(dir.path(), 1 << 16).unwrap();
    assert!(found.is_empty());
    wal.append(&[entry(1), entry(2)]).unwrap();
    wal.append(&[entry(3)]).unwrap();
    drop(wal);
    let (_, found) = open(dir.path(), 1 << 16).unwrap();
    assert_eq!(found, [entry(1), entry(2), entry(3)]);
}

#[test]
fn a_directory_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let first = RealDir::open(dir.path()).unwrap();
    let why = RealDir::open(dir.path()).unwrap_err().to_string();
    assert!(why.contains("another replica"), "{why}");
    drop(first);
    RealDir::open(dir.path()).unwrap();
}

#[test]
fn a_torn_tail_is_cut_and_writing_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = open(dir.path(), 1 << 16).unwrap();
    wal.append(&[entry(1)]).unwrap();
    let kept = wal_offset(dir.path());
    wal.append(&[entry(2), entry(3)]).unwrap();
    drop(wal);
    // The second flush reached the disk only in part.
    flip(dir.path(), kept + 60);
    let (mut wal, found) = open(dir.path(), 1 << 16).unwrap();
    assert_eq!(found, [entry(1)]);
    wal.append(&[entry(2)]).unwrap();
    drop(wal);
    assert_eq!(open(dir.path(), 1 << 16).unwrap().1, [entry(1), entry(2)]);
}

#[test]
fn corruption_before_a_good_frame_is_refused_with_its_offset() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = open(dir.path(), 1 << 16).unwrap();
    wal.append(&[entry(1)]).unwrap();
    let second = wal_offset(dir.path());
    wal.append(&[entry(2)]).unwrap();
    wal.append(&[entry(3)]).unwrap();
    drop(wal);
    flip(dir.path(), second + 30);
    match open(dir.path(), 1 << 16) {
        Err(WalError::Corrupt { offset, .. }) => assert_eq!(offset, second),
        other => panic!("not refused: {:?}", other.map(|(_, records)| records)),
    }
}

#[test]
fn segments_roll_and_go_once_a_snapshot_covers_them() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = open(dir.path(), 4096).unwrap();
    let vote = Record {
        group: 0,
        kind: RecordKind::Vote,
        index: 0,
        payload: b"vote".to_vec(),
    };
    wal.append(std::slice::from_ref(&vote)).unwrap();
    for index in 1..=300 {
        wal.append(&[entry(index)]).unwrap();
    }
    let segments = || {
        let names = fs::read_dir(dir.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("log-")).count()
    };
    assert!(segments() > 3);
    wal.append(&[Record {
        group: 0,
        kind: RecordKind::Purge,
        index: 290,
        payload: vec![],
    }])
    .unwrap();
    assert!(segments() <= 2);
    drop(wal);
    let (_, found) = open(dir.path(), 4096).unwrap();
    assert!(found.contains(&vote), "the vote must outlive its segment");
    assert!(found.contains(&entry(291)) && found.contains(&entry(300)));
}

#[test]
fn a_vote_outlives_its_segment_also_where_a_crash_cut_the_next_one_short() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = open(dir.path(), 4096).unwrap();
    let of = |kind, index| Record {
        kind,
        ..entry(index)
    };
    let vote = of(RecordKind::Vote, 0);
    wal.append(&[vote.clone(), entry(1)]).unwrap();
    drop(wal);
    fs::write(dir.path().join("log-000000000002.seg"), []).unwrap();
    let (mut wal, _) = open(dir.path(), 4096).unwrap();
    wal.append(&[of(RecordKind::Purge, 1), entry(2)]).unwrap();
    drop(wal);
    assert!(!dir.path().join("log-000000000001.seg").exists());
    let (_, found) = open(dir.path(), 4096).unwrap();
    assert!(found.contains(&vote) && found.contains(&entry(2)));
}

#[test]
fn a_rotten_older_segment_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = open(dir.path(), 4096).unwrap();
    for index in 1..=100 {
        wal.append(&[entry(index)]).unwrap();
    }
    drop(wal);
    flip(dir.path(), 100);
    assert!(matches!(
        open(dir.path(), 4096),
        Err(WalError::Corrupt { .. })
    ));
}

/// Offset after the last written byte of the first segment.
fn wal_offset(path: &Path) -> u64 {
    let bytes = fs::read(path.join("log-000000000001.seg")).unwrap();
    bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at as u64 + 1)
}

fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path.join("log-000000000001.seg"))
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0xFF], offset).unwrap();
}

/// A disk whose syncs fail once it is told to.
struct Failing(RealDir, Arc<std::sync::atomic::AtomicBool>);

struct FailingFile(Box<dyn LogFile>, Arc<std::sync::atomic::AtomicBool>);

impl LogFile for FailingFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_at(offset, bytes)
    }

    fn sync(&mut self) -> std::io::Result<()> {
        if self.1.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(std::io::Error::from_raw_os_error(libc::EIO));
        }
        self.0.sync()
    }
}

impl Dir for Failing {
    fn list(&self) -> std::io::Result<Vec<String>> {
        self.0.list()
    }

    fn read(&self, name: &str) -> std::io::Result<Vec<u8>> {
        self.0.read(name)
    }

    fn open(&self, name: &str, size: u64) -> std::io::Result<Box<dyn LogFile>> {
        let file = self.0.open(name, size)?;
        Ok(Box::new(FailingFile(file, Arc::clone(&self.1))))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        self.0.replace(name, bytes)
    }

    fn remove(&self, name: &str) -> std::io::Result<()> {
        self.0.remove(name)
    }
}

#[test]
fn what_a_killed_process_left_is_synced_before_it_counts() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = open(dir.path(), 1 << 16).unwrap();
    wal.append(&[entry(1)]).unwrap();
    drop(wal);
    let failing = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let disk = Failing(RealDir::open(dir.path()).unwrap(), failing);
    let opened = Wal::open(Arc::new(disk), WalOptions::default());
    assert!(opened.err().unwrap().to_string().contains("sync"));
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_and_the_node_is_told_once() {
    let temporary = tempfile::tempdir().unwrap();
    let failing = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let dir = Failing(
        RealDir::open(temporary.path()).unwrap(),
        Arc::clone(&failing),
    );
    let (wal, _) = Wal::open(Arc::new(dir), WalOptions::default()).unwrap();
    let (told, failures) = std::sync::mpsc::channel();
    let (flusher, _ended) =
        Flusher::start(wal, move |error| told.send(error.to_string()).unwrap()).unwrap();
    let write = |index| {
        let (tx, rx) = std::sync::mpsc::channel();
        flusher.submit(Job {
            records: vec![entry(index)],
            done: Box::new(move |result| tx.send(result).unwrap()),
        });
        rx.recv().unwrap()
    };
    write(1).unwrap();
    assert_eq!(flusher.stats().sequence(), 1);
    failing.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(write(2).unwrap_err().contains("sync"));
    // The disk is well again, but what it holds is unknown.
    failing.store(false, std::sync::atomic::Ordering::Relaxed);
    assert!(write(3).unwrap_err().contains("failed earlier"));
    assert_eq!(
        flusher.stats().sequence(),
        1,
        "nothing after the failure counts as durable"
    );
    assert!(failures.recv().unwrap().contains("the replica must stop"));
    assert!(failures.try_recv().is_err(), "told once");
}
