//! Stamps for events whose ranks may be equal.

use std::borrow::Borrow;

use fencepost_history::{Event, EventType};

use crate::options::CheckError;

/// Gives each event a stamp of its own: in order of rank, and among events of
/// one rank all invocations before all completions, so that they are concurrent.
pub(super) struct Stamps<E> {
    next: u64,
    rank: Option<u64>,
    group: Vec<E>,
}

impl<E> Default for Stamps<E> {
    fn default() -> Self {
        Stamps {
            next: 0,
            rank: None,
            group: Vec::new(),
        }
    }
}

impl<E: Borrow<Event>> Stamps<E> {
    pub fn push(&mut self, event: E, rank: u64, sink: &mut super::Sink) -> Result<(), CheckError> {
        if self.rank > Some(rank) {
            let what = "comes before the event above it: sort the history".to_string();
            return Err(CheckError::Malformed {
                index: event.borrow().index,
                line: None,
                what,
            });
        }
        if self.rank != Some(rank) {
            self.flush(sink)?;
            self.rank = Some(rank);
        }
        self.group.push(event);
        Ok(())
    }

    pub fn flush(&mut self, sink: &mut super::Sink) -> Result<(), CheckError> {
        if let [event] = self.group.as_slice() {
            sink(event.borrow(), self.next)?;
            self.next += 1;
            self.group.clear();
            return Ok(());
        }
        let invokes = self
            .group
            .iter()
            .filter(|e| (*e).borrow().kind == EventType::Invoke)
            .count() as u64;
        let (mut invoke, mut complete) = (self.next, self.next + invokes);
        self.next += self.group.len() as u64;
        for e in self.group.drain(..) {
            let stamp = if e.borrow().kind == EventType::Invoke {
                &mut invoke
            } else {
                &mut complete
            };
            sink(e.borrow(), *stamp)?;
            *stamp += 1;
        }
        Ok(())
    }
}

/// Lines of the events whose stamps may still be to come.
#[derive(Default)]
pub(super) struct Lines {
    rank: Option<u64>,
    /// Index and line, of the last two ranks.
    last: [Vec<(u64, u64)>; 2],
}

impl Lines {
    pub fn push(&mut self, index: u64, rank: u64, line: u64) {
        if self.rank.replace(rank) != Some(rank) {
            self.last.rotate_left(1);
            self.last[1].clear();
        }
        self.last[1].push((index, line));
    }

    /// The error, with the line of its event.
    pub fn name(&self, e: CheckError) -> CheckError {
        match e {
            CheckError::Malformed { index, what, .. } => {
                let line = self
                    .last
                    .iter()
                    .flatten()
                    .find(|l| l.0 == index)
                    .map(|l| l.1);
                CheckError::Malformed { index, line, what }
            }
            other => other,
        }
    }
}

/// Notes which event has a stamp.
pub(super) fn note(indexes: &mut Vec<u64>, stamp: u64, event: u64) {
    let at = stamp as usize;
    if indexes.len() <= at {
        indexes.resize(at + 1, 0);
    }
    indexes[at] = event;
}

pub(super) fn index(indexes: &[u64], stamp: u64) -> u64 {
    indexes.get(stamp as usize).copied().unwrap_or(stamp)
}
