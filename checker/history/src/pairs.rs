//! Invocations and their completions.
//!
//! A client is sequential: it invokes, gets its completion, invokes again. After
//! an `info` its process id is retired. What breaks that is malformed and
//! named by its line. Named processes (nemesis, controller, workers) do no operations.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use crate::error::ReadError;
use crate::read::{History, Record};
use crate::{Event, EventType, Process};

/// One operation of a [`History`], by positions in its `events`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    pub process: u64,
    pub invoke: usize,
    /// `None` when it never returned: unknown, as an `info` is.
    pub complete: Option<usize>,
}

/// What [`Pairing::feed`] made of an event.
#[derive(Debug)]
pub enum Fed {
    /// Not a client's.
    Other(Record),
    /// An invocation; kept until it completes.
    Invoked(u64),
    /// A completion with its invocation. The operation is over, unless it is an `info`.
    Completed { invoke: Record, complete: Record },
}

/// Refuses what no sequential client could have caused. Keeps a process's open call and nothing else.
#[derive(Default)]
pub struct Sequence {
    open: HashMap<u64, (Arc<str>, u64), foldhash::fast::FixedState>,
    retired: HashSet<u64, foldhash::fast::FixedState>,
}

impl Sequence {
    /// Checks the next event, which is on this line.
    ///
    /// # Errors
    /// Names the line of an event that no sequential client could have caused.
    pub fn check(&mut self, e: &Event, line: u64) -> Result<(), ReadError> {
        let Process::Client(p) = e.process else {
            return Ok(());
        };
        let bad = |what: String| Err(ReadError::malformed(line, what));
        let f = &e.f;
        if e.kind == EventType::Invoke {
            if self.retired.contains(&p) {
                return bad(format!("process {p} invokes {f} after its info retired it"));
            }
            if let Some((other, at)) = self.open.insert(p, (f.clone(), line)) {
                return bad(format!(
                    "process {p} invokes {f} while its {other} of line {at} is open"
                ));
            }
            return Ok(());
        }
        match self.open.remove(&p) {
            None => bad(format!("process {p} completes {f} without an invocation")),
            Some((other, at)) if other != *f => bad(format!(
                "process {p} completes {f} but line {at} invoked {other}"
            )),
            Some(_) => {
                if e.kind == EventType::Info {
                    self.retired.insert(p);
                }
                Ok(())
            }
        }
    }
}

/// Pairs a stream; memory is bounded by the operations that are open or unknown.
#[derive(Default)]
pub struct Pairing {
    sequence: Sequence,
    open: HashMap<u64, Record, foldhash::fast::FixedState>,
}

impl Pairing {
    pub fn new() -> Self {
        Self::default()
    }

    /// # Errors
    /// Names the line of an event that no sequential client could have caused.
    pub fn feed(&mut self, r: Record) -> Result<Fed, ReadError> {
        self.sequence.check(&r.event, r.line)?;
        let Process::Client(p) = r.event.process else {
            return Ok(Fed::Other(r));
        };
        Ok(match self.open.remove(&p) {
            Some(invoke) => Fed::Completed {
                invoke,
                complete: r,
            },
            None => {
                self.open.insert(p, r);
                Fed::Invoked(p)
            }
        })
    }

    /// Invocations that have not returned, by rising index.
    pub fn finish(self) -> Vec<Record> {
        let mut rest: Vec<Record> = self.open.into_values().collect();
        rest.sort_by_key(|r| r.event.index);
        rest
    }
}

/// Pairs a whole history; operations in the order of their invocations.
///
/// # Errors
/// Names the line of an event that no sequential client could have caused.
pub fn pairs(h: &History) -> Result<Vec<Op>, ReadError> {
    let mut sequence = Sequence::default();
    let mut ops: Vec<Op> = Vec::new();
    let mut open: HashMap<u64, usize> = HashMap::new();
    for (i, e) in h.events.iter().enumerate() {
        sequence.check(e, h.lines[i])?;
        let Process::Client(process) = e.process else {
            continue;
        };
        match open.remove(&process) {
            Some(op) => ops[op].complete = Some(i),
            None => {
                open.insert(process, ops.len());
                ops.push(Op {
                    process,
                    invoke: i,
                    complete: None,
                });
            }
        }
    }
    Ok(ops)
}
