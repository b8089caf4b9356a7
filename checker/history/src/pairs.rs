//! Invocations and their completions.
//!
//! A client is sequential: it invokes, gets its completion, invokes again. After
//! an `info` its process id is retired. What breaks that is malformed and
//! named by its line. Named processes (nemesis, controller, workers) do no operations.

use hashbrown::{HashMap, HashSet};

use crate::error::ReadError;
use crate::read::{History, Record};
use crate::{EventType, Process};

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

/// Pairs a stream; memory is bounded by the operations that are open or unknown.
#[derive(Default)]
pub struct Pairing {
    open: HashMap<u64, Record, foldhash::fast::FixedState>,
    retired: HashSet<u64, foldhash::fast::FixedState>,
}

impl Pairing {
    pub fn new() -> Self {
        Self::default()
    }

    /// # Errors
    /// Names the line of an event that no sequential client could have caused.
    pub fn feed(&mut self, r: Record) -> Result<Fed, ReadError> {
        let Process::Client(p) = r.event.process else {
            return Ok(Fed::Other(r));
        };
        if r.event.kind == EventType::Invoke {
            if self.retired.contains(&p) {
                return Err(ReadError::malformed(
                    r.line,
                    format!("process {p} invokes again after its info retired it"),
                ));
            }
            if let Some(open) = self.open.get(&p) {
                return Err(ReadError::malformed(
                    r.line,
                    format!(
                        "process {p} invokes {} while its {} of line {} is open",
                        r.event.f, open.event.f, open.line
                    ),
                ));
            }
            self.open.insert(p, r);
            return Ok(Fed::Invoked(p));
        }
        let Some(invoke) = self.open.remove(&p) else {
            return Err(ReadError::malformed(
                r.line,
                format!("process {p} completes {} without an invocation", r.event.f),
            ));
        };
        if invoke.event.f != r.event.f {
            return Err(ReadError::malformed(
                r.line,
                format!(
                    "process {p} completes {} but line {} invoked {}",
                    r.event.f, invoke.line, invoke.event.f
                ),
            ));
        }
        if r.event.kind == EventType::Info {
            self.retired.insert(p);
        }
        Ok(Fed::Completed {
            invoke,
            complete: r,
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
    let mut ops: Vec<Op> = Vec::new();
    let mut open: HashMap<u64, usize> = HashMap::new();
    let mut retired: HashSet<u64> = HashSet::new();
    for (i, e) in h.events.iter().enumerate() {
        let Process::Client(p) = e.process else {
            continue;
        };
        let bad = |what: String| Err(ReadError::malformed(h.lines[i], what));
        if e.kind == EventType::Invoke {
            if retired.contains(&p) {
                return bad(format!(
                    "process {p} invokes again after its info retired it"
                ));
            }
            if let Some(&o) = open.get(&p) {
                let at = ops[o].invoke;
                return bad(format!(
                    "process {p} invokes {} while its {} of line {} is open",
                    e.f, h.events[at].f, h.lines[at]
                ));
            }
            open.insert(p, ops.len());
            ops.push(Op {
                process: p,
                invoke: i,
                complete: None,
            });
            continue;
        }
        let Some(o) = open.remove(&p) else {
            return bad(format!(
                "process {p} completes {} without an invocation",
                e.f
            ));
        };
        let at = ops[o].invoke;
        if h.events[at].f != e.f {
            return bad(format!(
                "process {p} completes {} but line {} invoked {}",
                e.f, h.lines[at], h.events[at].f
            ));
        }
        if e.kind == EventType::Info {
            retired.insert(p);
        }
        ops[o].complete = Some(i);
    }
    Ok(ops)
}
