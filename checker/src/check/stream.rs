//! Stamps for records whose ranks may be equal.

use fencepost_history::{EventType, Record};

use crate::options::CheckError;

/// Gives each event a stamp of its own: in order of rank, and among events of
/// one rank all invocations before all completions, so that they are concurrent.
#[derive(Default)]
pub(super) struct Stamps {
    next: u64,
    group: Vec<Record>,
}

impl Stamps {
    pub fn push(&mut self, record: Record, sink: &mut super::Sink) -> Result<(), CheckError> {
        match self.group.last() {
            Some(last) if record.rank < last.rank => {
                let what = "comes before the event above it: sort the history".to_string();
                return Err(CheckError::Malformed {
                    index: record.event.index,
                    what,
                });
            }
            Some(last) if record.rank > last.rank => self.flush(sink)?,
            _ => {}
        }
        self.group.push(record);
        Ok(())
    }

    pub fn flush(&mut self, sink: &mut super::Sink) -> Result<(), CheckError> {
        let invokes = self
            .group
            .iter()
            .filter(|r| r.event.kind == EventType::Invoke)
            .count() as u64;
        let (mut invoke, mut complete) = (self.next, self.next + invokes);
        self.next += self.group.len() as u64;
        for r in self.group.drain(..) {
            let stamp = if r.event.kind == EventType::Invoke {
                &mut invoke
            } else {
                &mut complete
            };
            sink(&r.event, *stamp)?;
            *stamp += 1;
        }
        Ok(())
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
