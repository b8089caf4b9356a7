//! One group's part of the node's log, as openraft wants it.
//!
//! Entries stay in memory until a snapshot covers them; the disk is read only at the start. Votes, appends and
//! truncations of a group go through the one flusher in the order in which openraft asked for them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::snapshot::Covered;
use super::{Entry, LogId, Types, Vote};
use crate::flaw::{self, Flaw};
use crate::wal::{Flusher, Job, RESTORE, Record, RecordKind};

#[derive(Default)]
struct State {
    entries: BTreeMap<u64, (Entry, usize)>,
    bytes: usize,
    purged: Option<LogId>,
    vote: Option<Vote>,
}

impl State {
    fn insert(&mut self, entry: Entry, size: usize) {
        self.bytes += size;
        if let Some((_, old)) = self.entries.insert(entry.log_id.index, (entry, size)) {
            self.bytes -= old;
        }
    }

    /// Is every entry up to `last` here or purged?
    fn reaches(&self, last: LogId) -> bool {
        let first = self.purged.map_or(0, |purged| purged.index + 1);
        let here = self.entries.range(first..=last.index).count() as u64;
        let at = self.entries.get(&last.index);
        at.is_some_and(|(entry, _)| entry.log_id == last) && here == last.index + 1 - first
    }

    fn truncate_from(&mut self, index: u64) {
        let cut = self.entries.split_off(&index);
        self.bytes -= cut.values().map(|(_, size)| size).sum::<usize>();
    }

    fn purge(&mut self, upto: LogId) {
        let kept = self.entries.split_off(&(upto.index + 1));
        let cut = std::mem::replace(&mut self.entries, kept);
        self.bytes -= cut.values().map(|(_, size)| size).sum::<usize>();
        self.purged = Some(upto);
    }
}

/// One group's log on this node. Clones share it.
#[derive(Clone)]
pub struct LogStore {
    group: u32,
    flusher: Flusher,
    covered: Covered,
    state: Arc<Mutex<State>>,
}

impl LogStore {
    /// Rebuilds the group's log from all records of the node's log, in order of writing. `snapshot` is the last entry
    /// that the snapshot on disk covers.
    pub fn recover(
        group: u32,
        flusher: Flusher,
        records: &[Record],
        covered: Covered,
        snapshot: Option<LogId>,
    ) -> io::Result<Self> {
        let mut state = State::default();
        for record in records.iter().filter(|record| record.group == group) {
            match record.kind {
                RecordKind::Entry => state.insert(decode(record)?, record.payload.len()),
                RecordKind::Truncate => state.truncate_from(record.index),
                RecordKind::Purge => {
                    let upto: LogId = decode(record)?;
                    if Some(upto) > state.purged {
                        state.purge(upto);
                    }
                }
                RecordKind::Vote => state.vote = Some(decode(record)?),
                RecordKind::Committed => {}
            }
        }
        // A segment begins with the purge that is in force, also before entries that the purge covers.
        if let Some(upto) = state.purged {
            state.purge(upto);
        }
        if state.purged > snapshot {
            return Err(io::Error::other(format!(
                "the log begins after {:?}, the snapshot ends at {snapshot:?}; {RESTORE}",
                state.purged
            )));
        }
        // A snapshot was received, and the process ended before the log was purged to it. Entries after it may be there
        // already, and a later snapshot of this replica's own: then the log has a gap below that.
        if let Some(last) = snapshot
            && state.purged < snapshot
            && !state.reaches(last)
        {
            state.purge(last);
        }
        Ok(LogStore {
            group,
            flusher,
            covered,
            state: Arc::new(Mutex::new(state)),
        })
    }

    /// Bytes of entries since the last purge.
    pub fn bytes(&self) -> usize {
        self.state().bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, kind: RecordKind, index: u64, payload: Vec<u8>) -> Record {
        Record {
            group: self.group,
            kind,
            index,
            payload,
        }
    }

    async fn write(&self, record: Record) -> io::Result<()> {
        let (tx, rx) = oneshot::channel();
        let done = Box::new(move |result| drop(tx.send(result)));
        self.flusher.submit(Job {
            records: vec![record],
            done,
        });
        rx.await
            .map_err(io::Error::other)?
            .map_err(io::Error::other)
    }
}

fn decode<T: DeserializeOwned>(record: &Record) -> io::Result<T> {
    postcard::from_bytes(&record.payload).map_err(|error| {
        let (group, index) = (record.group, record.index);
        io::Error::other(format!(
            "record {index} of group {group} cannot be decoded: {error}; another version wrote it"
        ))
    })
}

fn encode<T: serde::Serialize>(value: &T) -> io::Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(io::Error::other)
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<Entry>> {
        Ok(self
            .state()
            .entries
            .range(range)
            .map(|(_, (entry, _))| entry.clone())
            .collect())
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.state().vote)
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let state = self.state();
        let last = state
            .entries
            .last_key_value()
            .map(|(_, (entry, _))| entry.log_id);
        Ok(LogState {
            last_purged_log_id: state.purged,
            last_log_id: last.or(state.purged),
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    /// Returns once the vote is on disk: only then may it be told to anyone.
    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let record = self.record(RecordKind::Vote, 0, encode(vote)?);
        self.state().vote = Some(*vote);
        if flaw::active(Flaw::ForgetVote) {
            return Ok(());
        }
        self.write(record).await
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut records = Vec::new();
        {
            let mut state = self.state();
            for entry in entries {
                let payload = encode(&entry)?;
                let size = payload.len();
                records.push(self.record(RecordKind::Entry, entry.log_id.index, payload));
                state.insert(entry, size);
            }
        }
        let done = Box::new(move |result: Result<(), String>| {
            callback.io_completed(result.map_err(io::Error::other))
        });
        self.flusher.submit(Job { records, done });
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let from = last.map_or(0, |last| last.index + 1);
        self.state().truncate_from(from);
        self.write(self.record(RecordKind::Truncate, from, Vec::new()))
            .await
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        // Were the purge on disk and the snapshot not, a crash would leave neither.
        if !self.covered.has(upto.index) {
            return Err(io::Error::other(format!(
                "the log is to be purged up to {upto}, which no snapshot on disk covers; stop this replica and report this"
            )));
        }
        let record = self.record(RecordKind::Purge, upto.index, encode(&upto)?);
        self.state().purge(upto);
        self.write(record).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use openraft::entry::EntryPayload;

    use super::*;

    fn at(index: u64) -> LogId {
        LogId::new_term_index(1, index)
    }

    fn entry(index: u64) -> Record {
        let (log_id, payload) = (at(index), EntryPayload::Blank);
        Record {
            group: 0,
            kind: RecordKind::Entry,
            index,
            payload: encode(&Entry { log_id, payload }).unwrap(),
        }
    }

    fn recovered(entries: &[u64], snapshot: u64) -> (Option<LogId>, Vec<u64>) {
        let records: Vec<Record> = entries.iter().map(|index| entry(*index)).collect();
        recovered_of(&records, snapshot)
    }

    fn recovered_of(records: &[Record], snapshot: u64) -> (Option<LogId>, Vec<u64>) {
        let flusher = Flusher::custom(Err, Arc::default());
        let covered = Covered::default();
        let log = LogStore::recover(0, flusher, records, covered, Some(at(snapshot))).unwrap();
        let state = log.state();
        (state.purged, state.entries.keys().copied().collect())
    }

    #[test]
    fn a_log_begins_after_the_snapshot_where_it_does_not_reach_up_to_it() {
        assert_eq!(recovered(&[0, 1, 2], 2), (None, vec![0, 1, 2]));
        assert_eq!(recovered(&[0, 1], 3), (Some(at(3)), vec![]));
        // 3 was in a snapshot that was received; the one on disk was made later.
        let gap = [0, 1, 2, 4, 5, 6];
        assert_eq!(recovered(&gap, 5), (Some(at(5)), vec![6]));
        assert_eq!(recovered(&gap, 3), (Some(at(3)), vec![4, 5, 6]));
    }

    #[test]
    fn what_a_purge_covers_is_gone_also_where_a_segment_repeats_the_purge_before_it() {
        let purge = Record {
            kind: RecordKind::Purge,
            payload: encode(&at(3)).unwrap(),
            ..entry(3)
        };
        let records = [purge.clone(), entry(2), purge, entry(4)];
        assert_eq!(recovered_of(&records, 3), (Some(at(3)), vec![4]));
        assert_eq!(recovered_of(&records[..3], 3), (Some(at(3)), vec![]));
    }
}
