//! One thread writes for all groups: take all that is waiting, write it as one frame, sync once, call back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use tokio::sync::oneshot;

use super::{Record, Wal, WalError};
use crate::meter::Times;

/// Records to be made durable together and what to call afterwards.
pub struct Job {
    /// The records, in order.
    pub records: Vec<Record>,
    /// Called once on the flusher's thread, after the sync or the failure.
    pub done: Box<dyn FnOnce(Result<(), String>) + Send>,
}

/// Counts of the flusher.
#[derive(Debug, Default)]
pub struct FlushStats {
    /// Syncs done.
    pub syncs: AtomicU64,
    /// Records written.
    pub records: AtomicU64,
    /// Nanoseconds spent writing and syncing.
    pub nanos: AtomicU64,
    /// The same of each sync.
    pub times: Times,
    /// Sequence of the last durable frame.
    pub sequence: AtomicU64,
    /// The longest write and sync, nanoseconds.
    pub worst_nanos: AtomicU64,
}

impl FlushStats {
    /// Sequence of the last durable frame; only ever rises, also across restarts.
    pub fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Acquire)
    }

    pub(crate) fn set_sequence(&self, sequence: u64) {
        self.sequence.store(sequence, Ordering::Release);
    }
}

/// Handle of the flusher's thread, which ends when the last handle is dropped.
#[derive(Clone)]
pub struct Flusher {
    jobs: Arc<dyn Fn(Job) -> Result<(), Job> + Send + Sync>,
    stats: Arc<FlushStats>,
}

impl Flusher {
    /// Starts the thread. `failed` is called once if the disk fails: the node must stop, loudly.
    ///
    /// The receiver resolves when the thread has ended and the directory is free again.
    pub fn start(
        wal: Wal,
        failed: impl Fn(&WalError) + Send + 'static,
    ) -> std::io::Result<(Self, oneshot::Receiver<()>)> {
        let (ended, over) = oneshot::channel();
        let (jobs, inbox) = mpsc::channel();
        let stats = Arc::new(FlushStats::default());
        stats.set_sequence(wal.sequence());
        let counts = Arc::clone(&stats);
        std::thread::Builder::new()
            .name("raftlock-flush".to_owned())
            .spawn(move || {
                run(wal, &inbox, &counts, &failed);
                let _ = ended.send(());
            })?;
        let jobs = move |job| jobs.send(job).map_err(|mpsc::SendError(job)| job);
        Ok((
            Flusher {
                jobs: Arc::new(jobs),
                stats,
            },
            over,
        ))
    }

    /// A flusher whose jobs are done elsewhere, in a simulation.
    #[cfg(test)]
    pub fn custom(
        jobs: impl Fn(Job) -> Result<(), Job> + Send + Sync + 'static,
        stats: Arc<FlushStats>,
    ) -> Self {
        Flusher {
            jobs: Arc::new(jobs),
            stats,
        }
    }

    /// Queues a job; jobs are made durable in the order of queueing.
    pub fn submit(&self, job: Job) {
        if let Err(job) = (self.jobs)(job) {
            (job.done)(Err(WalError::Poisoned.to_string()));
        }
    }

    /// Counts so far.
    pub fn stats(&self) -> Arc<FlushStats> {
        Arc::clone(&self.stats)
    }
}

fn run(mut wal: Wal, inbox: &mpsc::Receiver<Job>, stats: &FlushStats, failed: &dyn Fn(&WalError)) {
    let mut reported = false;
    while let Ok(first) = inbox.recv() {
        let mut records = first.records;
        let mut callbacks = vec![first.done];
        while let Ok(job) = inbox.try_recv() {
            records.extend(job.records);
            callbacks.push(job.done);
        }
        let begun = Instant::now();
        let result = wal.append(&records);
        let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        stats.syncs.fetch_add(1, Ordering::Relaxed);
        stats
            .records
            .fetch_add(records.len() as u64, Ordering::Relaxed);
        stats.nanos.fetch_add(nanos, Ordering::Relaxed);
        stats.times.add(begun.elapsed());
        stats.worst_nanos.fetch_max(nanos, Ordering::Relaxed);
        if result.is_ok() {
            stats.set_sequence(wal.sequence());
        }
        if let Err(error) = &result
            && !reported
        {
            reported = true;
            failed(error);
        }
        for done in callbacks {
            done(result.as_ref().copied().map_err(ToString::to_string));
        }
    }
}
