//! A whole history in memory, in order.

use std::path::Path;

use super::order::Record;
use super::stream::Reader;
use crate::Event;
use crate::error::{ReadError, STEPS_BACK, Warning, Warnings};

/// All events of a history, by rising index.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub events: Vec<Event>,
    /// Line of the file of each event, from 1.
    pub lines: Vec<u64>,
    pub warnings: Vec<Warning>,
    /// Rank of each event, kept only where it is not the index.
    ranks: Option<Vec<u64>>,
}

impl History {
    /// A history made in memory; precedence is by index.
    pub fn from_events(mut events: Vec<Event>) -> History {
        events.sort_by_key(|e| e.index);
        History {
            lines: (1..=events.len() as u64).collect(),
            events,
            ..History::default()
        }
    }

    /// Real-time rank of event number `i`: lower came first, equal is concurrent.
    pub fn rank(&self, i: usize) -> u64 {
        match &self.ranks {
            Some(r) => r[i],
            None => self.events[i].index,
        }
    }

    /// The events with line and rank, as [`Reader`] yields them.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.events.iter().enumerate().map(|(i, e)| Record {
            event: e.clone(),
            line: self.lines[i],
            rank: self.rank(i),
        })
    }
}

/// Reads a whole file of any supported format and sorts it by index.
///
/// # Errors
/// When the file cannot be read, or a line is malformed: the error names the line.
pub fn read_path(path: &Path) -> Result<History, ReadError> {
    collect(Reader::open(path)?)
}

/// As [`read_path`], from memory.
///
/// # Errors
/// When a line is malformed: the error names the line.
pub fn read_bytes(bytes: impl Into<Vec<u8>>) -> Result<History, ReadError> {
    collect(Reader::from_bytes(bytes.into())?)
}

fn collect(reader: Reader) -> Result<History, ReadError> {
    let mut reader = reader.unsorted();
    let mut records = Vec::new();
    for r in reader.by_ref() {
        records.push(r?);
    }
    let sorted = records
        .windows(2)
        .all(|w| w[0].event.index < w[1].event.index);
    if !sorted {
        records.sort_by_key(|r| r.event.index);
        let twice = records
            .windows(2)
            .find(|w| w[0].event.index == w[1].event.index);
        if let Some(w) = twice {
            return Err(ReadError::malformed(
                w[0].line.max(w[1].line),
                format!("index {} is there twice", w[0].event.index),
            ));
        }
    }
    let mut warnings = reader.warnings().to_vec();
    if !sorted {
        // Steps of the shuffled file say nothing; those of the sorted one do.
        warnings.retain(|w| w.what != STEPS_BACK);
        let mut again = Warnings(warnings);
        for w in records
            .windows(2)
            .filter(|w| w[1].event.time < w[0].event.time)
        {
            again.add(w[1].line, STEPS_BACK);
        }
        warnings = again.0;
    }
    let ranks = (!reader.indexed()).then(|| records.iter().map(|r| r.rank).collect());
    Ok(History {
        lines: records.iter().map(|r| r.line).collect(),
        events: records.into_iter().map(|r| r.event).collect(),
        warnings,
        ranks,
    })
}
