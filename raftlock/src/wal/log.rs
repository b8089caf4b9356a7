//! Segments: opening, appending, rolling over, dropping what snapshots cover.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::frame::{self, Found};
use super::{Dir, LogFile, Record, RecordKind, WalError};

/// Sizes of the log.
#[derive(Debug, Clone, Copy)]
pub struct WalOptions {
    /// Bytes of a segment, which are written as zeros before it is used.
    pub segment_bytes: u64,
    /// False loses acknowledged grants at a power cut: for measuring what the sync costs, and for the simulation's
    /// seeded bug.
    pub sync: bool,
}

impl Default for WalOptions {
    fn default() -> Self {
        WalOptions {
            segment_bytes: 16 << 20,
            sync: true,
        }
    }
}

/// What is known of one group across segments.
#[derive(Debug, Default, Clone)]
struct GroupMeta {
    vote: Option<Record>,
    committed: Option<Record>,
    purge: Option<Record>,
}

/// A sealed or current segment and the highest entry of each group in it.
#[derive(Debug)]
struct Segment {
    number: u64,
    highest: BTreeMap<u32, u64>,
}

/// The log of one node.
pub struct Wal {
    dir: Arc<dyn Dir>,
    options: WalOptions,
    segments: Vec<Segment>,
    file: Box<dyn LogFile>,
    offset: u64,
    sequence: u64,
    groups: BTreeMap<u32, GroupMeta>,
    buffer: Vec<u8>,
    poisoned: bool,
}

fn segment_name(number: u64) -> String {
    format!("log-{number:012}.seg")
}

fn segment_number(name: &str) -> Option<u64> {
    name.strip_prefix("log-")?
        .strip_suffix(".seg")?
        .parse()
        .ok()
}

impl Wal {
    /// Opens the log in `dir`, cutting a torn tail. Returns it with every record in order of writing.
    pub fn open(dir: Arc<dyn Dir>, options: WalOptions) -> Result<(Self, Vec<Record>), WalError> {
        let names = dir
            .list()
            .map_err(|error| WalError::io("list", "the log's directory", error))?;
        let mut numbers: Vec<u64> = names
            .iter()
            .filter_map(|name| segment_number(name))
            .collect();
        numbers.sort_unstable();
        let mut scan = Scan::default();
        for (at, number) in numbers.iter().enumerate() {
            let name = segment_name(*number);
            let bytes = dir
                .read(&name)
                .map_err(|error| WalError::io("read", &name, error))?;
            scan.segment(*number, &name, &bytes, at + 1 == numbers.len())?;
        }
        let current = numbers.last().copied().unwrap_or(1);
        if numbers.is_empty() {
            scan.segments.push(Segment {
                number: current,
                highest: BTreeMap::new(),
            });
        }
        let name = segment_name(current);
        let mut file = dir
            .open(&name, options.segment_bytes)
            .map_err(|error| WalError::io("open", &name, error))?;
        if let Some(torn) = scan.torn {
            // Blank the torn bytes, or a later scan could take them for corruption.
            let zeros = vec![0; torn];
            file.write_at(scan.offset, &zeros)
                .map_err(|error| WalError::io("cut", &name, error))?;
            tracing::warn!(
                segment = name,
                offset = scan.offset,
                bytes = torn,
                "cut a torn tail off the log"
            );
        }
        // The last frame may be of a process that was killed before its sync; what was read counts as durable from now on.
        file.sync()
            .map_err(|error| WalError::io("sync", &name, error))?;
        let wal = Wal {
            dir,
            options,
            segments: scan.segments,
            file,
            offset: scan.offset,
            sequence: scan.sequence,
            groups: scan.groups,
            buffer: Vec::new(),
            poisoned: false,
        };
        Ok((wal, scan.records))
    }

    /// Sequence of the last frame written.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Appends records as one frame and makes them durable. After an error nothing more is accepted: what the disk
    /// holds is unknown, and a second sync could report success for lost pages.
    pub fn append(&mut self, records: &[Record]) -> Result<(), WalError> {
        if self.poisoned {
            return Err(WalError::Poisoned);
        }
        let done = self.try_append(records);
        self.poisoned = done.is_err();
        done
    }

    fn try_append(&mut self, records: &[Record]) -> Result<(), WalError> {
        let mut purged = false;
        for record in records {
            purged |= record.kind == RecordKind::Purge;
            note(&mut self.groups, record);
        }
        self.sequence += 1;
        let mut buffer = std::mem::take(&mut self.buffer);
        frame::encode(&mut buffer, self.sequence, records);
        if self.offset > 0 && self.offset + buffer.len() as u64 > self.options.segment_bytes {
            self.roll()?;
        }
        // Not only after a roll: it may have been cut short by a crash.
        if self.offset == 0 && self.segments.len() > 1 {
            self.repeat()?;
            frame::encode(&mut buffer, self.sequence, records);
        }
        self.write(&buffer)?;
        if buffer.capacity() > 1 << 20 {
            buffer = Vec::new();
        }
        self.buffer = buffer;
        if let Some(segment) = self.segments.last_mut() {
            note_highest(&mut segment.highest, records);
        }
        if purged { self.drop_covered() } else { Ok(()) }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), WalError> {
        let name = segment_name(self.segments.last().map_or(1, |segment| segment.number));
        self.file
            .write_at(self.offset, bytes)
            .map_err(|error| WalError::io("write", &name, error))?;
        self.offset += bytes.len() as u64;
        if self.options.sync {
            self.file
                .sync()
                .map_err(|error| WalError::io("sync", &name, error))?;
        }
        Ok(())
    }

    /// Starts a segment.
    fn roll(&mut self) -> Result<(), WalError> {
        let number = self.segments.last().map_or(1, |segment| segment.number + 1);
        let name = segment_name(number);
        self.file = self
            .dir
            .open(&name, self.options.segment_bytes)
            .map_err(|error| WalError::io("open", &name, error))?;
        self.offset = 0;
        self.segments.push(Segment {
            number,
            highest: BTreeMap::new(),
        });
        Ok(())
    }

    /// Begins a segment with each group's vote and positions, so that older ones can go.
    fn repeat(&mut self) -> Result<(), WalError> {
        let kept: Vec<Record> = self
            .groups
            .values()
            .flat_map(|meta| [&meta.vote, &meta.purge, &meta.committed])
            .flatten()
            .cloned()
            .collect();
        let mut buffer = Vec::new();
        frame::encode(&mut buffer, self.sequence, &kept);
        self.write(&buffer)?;
        self.sequence += 1;
        Ok(())
    }

    /// Removes the oldest segments while all their entries are covered by snapshots.
    fn drop_covered(&mut self) -> Result<(), WalError> {
        while self.segments.len() > 1 {
            let covered = |(group, highest): (&u32, &u64)| {
                let purge = self.groups.get(group).and_then(|meta| meta.purge.as_ref());
                purge.is_some_and(|record| record.index >= *highest)
            };
            if !self.segments[0].highest.iter().all(covered) {
                return Ok(());
            }
            let name = segment_name(self.segments.remove(0).number);
            self.dir
                .remove(&name)
                .map_err(|error| WalError::io("remove", &name, error))?;
        }
        Ok(())
    }
}

fn note(groups: &mut BTreeMap<u32, GroupMeta>, record: &Record) {
    let meta = groups.entry(record.group).or_default();
    match record.kind {
        RecordKind::Vote => meta.vote = Some(record.clone()),
        RecordKind::Committed => meta.committed = Some(record.clone()),
        RecordKind::Purge => meta.purge = Some(record.clone()),
        RecordKind::Entry | RecordKind::Truncate => {}
    }
}

fn note_highest(highest: &mut BTreeMap<u32, u64>, records: &[Record]) {
    for record in records
        .iter()
        .filter(|record| matches!(record.kind, RecordKind::Entry | RecordKind::Truncate))
    {
        let entry = highest.entry(record.group).or_default();
        *entry = record.index.max(*entry);
    }
}

/// Reading all segments at the start.
#[derive(Default)]
struct Scan {
    segments: Vec<Segment>,
    records: Vec<Record>,
    groups: BTreeMap<u32, GroupMeta>,
    sequence: u64,
    offset: u64,
    torn: Option<usize>,
}

impl Scan {
    fn segment(
        &mut self,
        number: u64,
        name: &str,
        bytes: &[u8],
        last: bool,
    ) -> Result<(), WalError> {
        let corrupt = |offset: usize, what| WalError::Corrupt {
            name: name.to_owned(),
            offset: offset as u64,
            what,
        };
        let mut highest = BTreeMap::new();
        let mut offset = 0;
        self.torn = None;
        loop {
            match frame::look(bytes, offset.min(bytes.len())) {
                Found::Blank => break,
                Found::Frame {
                    sequence,
                    body,
                    next,
                } => {
                    if sequence <= self.sequence {
                        return Err(corrupt(offset, "a frame out of sequence"));
                    }
                    let records = frame::records(body)
                        .ok_or_else(|| corrupt(offset, "a frame whose records do not add up"))?;
                    records
                        .iter()
                        .for_each(|record| note(&mut self.groups, record));
                    note_highest(&mut highest, &records);
                    self.records.extend(records);
                    self.sequence = sequence;
                    offset = next;
                }
                Found::Broken if !last => {
                    return Err(corrupt(offset, "a broken frame in an older segment"));
                }
                Found::Broken if frame::good_frame_after(bytes, offset, self.sequence) => {
                    return Err(corrupt(offset, "a broken frame before a good one"));
                }
                Found::Broken => {
                    self.torn = Some(bytes.len() - offset);
                    break;
                }
            }
        }
        self.offset = offset as u64;
        self.segments.push(Segment { number, highest });
        Ok(())
    }
}
