//! Index and rank: which event comes before which.

use std::sync::Arc;

use crate::error::{MIXED_INDEX, ReadError, STEPS_BACK, Warnings};
use crate::raw::{RawEvent, RawProcess};
use crate::{Event, Process};

/// An event with its place in the file and in real-time order.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub event: Event,
    /// Line of the file, from 1.
    pub line: u64,
    /// Real-time precedence: of two events, the one with the lower rank came first;
    /// equal ranks are concurrent. The index where the file has one; in a file
    /// without index, events of equal time share a rank.
    pub rank: u64,
}

/// Gives events their index and rank, and notices what is odd about their order.
#[derive(Default)]
pub(crate) struct Orderer {
    indexed: Option<bool>,
    next_index: u64,
    rank: u64,
    last_time: Option<i64>,
    nameless: Option<Arc<str>>,
}

impl Orderer {
    pub fn place(
        &mut self,
        raw: RawEvent,
        line: u64,
        warnings: &mut Warnings,
    ) -> Result<Record, ReadError> {
        let process = match raw.process {
            RawProcess::Is(p) => p,
            RawProcess::Absent => return Err(ReadError::malformed(line, "process is missing")),
        };
        let Some(kind) = raw.kind else {
            return Err(ReadError::malformed(line, "type is missing"));
        };
        let f = match (raw.f, &process) {
            (Some(f), _) => f,
            // Other tools' nemeses report without a function.
            (None, Process::Named(_)) => self.nameless.get_or_insert_with(|| Arc::from("")).clone(),
            (None, Process::Client(_)) => {
                return Err(ReadError::malformed(line, "f is missing"));
            }
        };
        let indexed = *self.indexed.get_or_insert(raw.index.is_some());
        if !indexed && raw.index.is_some() {
            warnings.add(line, MIXED_INDEX);
        }
        let index = match raw.index {
            Some(i) if indexed => i,
            _ => self.next_index,
        };
        self.next_index = index.saturating_add(1);
        let stepped = match (raw.time, self.last_time) {
            (Some(now), Some(before)) => {
                if now < before {
                    warnings.add(line, STEPS_BACK);
                }
                now != before
            }
            _ => true,
        };
        self.rank += u64::from(stepped);
        let time = raw.time.or(self.last_time).unwrap_or(0);
        if raw.time.is_some() {
            self.last_time = raw.time;
        }
        Ok(Record {
            event: Event {
                index,
                time,
                process,
                kind,
                f,
                key: raw.key,
                value: raw.value,
                error: raw.error,
            },
            line,
            rank: if indexed { index } else { self.rank },
        })
    }

    pub fn indexed(&self) -> bool {
        self.indexed.unwrap_or(true)
    }
}
