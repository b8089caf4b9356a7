//! Pairs events into operations, one event at a time.
//!
//! Only clients' events are operations; what named processes say is skipped,
//! and so is every operation that the object at hand does not know. Memory is
//! one decoded operation each, not two events.

use std::sync::Arc;

use fencepost_history::{Event, EventType, Process};
use hashbrown::{HashMap, HashSet};

use crate::ops::{NEVER, Timed};
use crate::options::CheckError;

/// Decoder of one family of objects' operations.
pub(crate) trait Family {
    type Op;
    /// The operation as invoked, its answer unknown; `None` if this object has
    /// no such operation.
    fn invoke(&mut self, event: &Event, process: u64) -> Result<Option<Self::Op>, String>;
    /// Notes the answer; false if the operation says nothing and is dropped.
    /// Called for `ok`, `fail` and `info`.
    fn complete(&mut self, op: &mut Self::Op, event: &Event) -> Result<bool, String>;
    /// Whether an operation that never returned can matter.
    fn keep_unknown(&self, op: &Self::Op) -> bool;
}

/// Operations of one key, by call.
pub(crate) struct Keyed<O> {
    pub key: Option<Arc<str>>,
    pub ops: Vec<Timed<O>>,
    /// Some operation did not fail.
    pub did: bool,
}

struct Open<O> {
    call: u64,
    key: usize,
    f: Arc<str>,
    op: Option<O>,
}

pub(crate) struct Pairing<F: Family> {
    pub family: F,
    partition: bool,
    open: HashMap<u64, Open<F::Op>, foldhash::fast::RandomState>,
    retired: HashSet<u64, foldhash::fast::RandomState>,
    keys: HashMap<Option<Arc<str>>, usize, foldhash::fast::RandomState>,
    parts: Vec<Keyed<F::Op>>,
    /// Last stamps of an invocation and of a completion.
    last: (Option<u64>, Option<u64>),
    pub unfit: std::collections::BTreeSet<String>,
    pub unknown: u64,
    /// Keys at which every operation failed. That says nothing: the lock may have been held from before the
    /// history began.
    pub silent: u64,
}

fn bad<T>(index: u64, what: impl Into<String>) -> Result<T, CheckError> {
    Err(CheckError::Malformed {
        index,
        line: None,
        what: what.into(),
    })
}

impl<F: Family> Pairing<F> {
    pub fn new(family: F, partition: bool) -> Self {
        Pairing {
            family,
            partition,
            open: HashMap::default(),
            retired: HashSet::default(),
            keys: HashMap::default(),
            parts: Vec::new(),
            last: (None, None),
            unfit: Default::default(),
            unknown: 0,
            silent: 0,
        }
    }

    /// Takes the next event with its stamp. Stamps are distinct, and those of
    /// invocations rise; so do those of completions.
    pub fn push(&mut self, event: &Event, stamp: u64) -> Result<(), CheckError> {
        let last = if event.kind == EventType::Invoke {
            &mut self.last.0
        } else {
            &mut self.last.1
        };
        if last.is_some_and(|l| stamp <= l) {
            return bad(
                event.index,
                "index is not above the one before it: sort the events by index",
            );
        }
        if stamp >= NEVER - 1 {
            return bad(event.index, "index is out of range");
        }
        *last = Some(stamp);
        let Process::Client(process) = event.process else {
            return Ok(());
        };
        match event.kind {
            EventType::Invoke => self.invoke(event, stamp, process),
            _ => self.complete(event, stamp, process),
        }
    }

    fn part(&mut self, key: &Option<Arc<str>>) -> usize {
        let key = if self.partition { key.as_ref() } else { None };
        if let Some(&i) = self.keys.get(&key.cloned()) {
            return i;
        }
        let i = self.parts.len();
        self.keys.insert(key.cloned(), i);
        self.parts.push(Keyed {
            key: key.cloned(),
            ops: Vec::new(),
            did: false,
        });
        i
    }

    fn invoke(&mut self, event: &Event, stamp: u64, process: u64) -> Result<(), CheckError> {
        if let Some(open) = self.open.get(&process) {
            let at = open.call;
            return bad(
                event.index,
                format!("process {process} invokes again while its call at index {at} is open"),
            );
        }
        if self.retired.contains(&process) {
            return bad(
                event.index,
                format!(
                    "process {process} invokes after an info: an unknown outcome retires the process id"
                ),
            );
        }
        let op = match self.family.invoke(event, process) {
            Ok(op) => op,
            Err(what) => return bad(event.index, what),
        };
        if op.is_none() && self.unfit.len() < 16 && !self.unfit.contains(&*event.f) {
            self.unfit.insert(event.f.to_string());
        }
        let key = if op.is_some() {
            self.part(&event.key)
        } else {
            0
        };
        self.open.insert(
            process,
            Open {
                call: stamp,
                key,
                f: event.f.clone(),
                op,
            },
        );
        Ok(())
    }

    fn complete(&mut self, event: &Event, stamp: u64, process: u64) -> Result<(), CheckError> {
        let Some(open) = self.open.remove(&process) else {
            return bad(
                event.index,
                format!("process {process} completes what it did not invoke"),
            );
        };
        if stamp <= open.call {
            return bad(
                event.index,
                "completes before its invocation: sort the events by index",
            );
        }
        if open.f != event.f {
            return bad(
                event.index,
                format!(
                    "completion says `{}`, its invocation at index {} says `{}`",
                    event.f, open.call, open.f
                ),
            );
        }
        if event.kind == EventType::Info {
            self.retired.insert(process);
        }
        let Some(mut op) = open.op else { return Ok(()) };
        self.parts[open.key].did |= event.kind != EventType::Fail;
        let keep = match self.family.complete(&mut op, event) {
            Ok(k) => k,
            Err(what) => return bad(event.index, what),
        };
        let ret = if event.kind == EventType::Info {
            NEVER
        } else {
            stamp
        };
        if keep {
            self.add(
                open.key,
                Timed {
                    call: open.call,
                    ret,
                    process,
                    op,
                },
            );
        }
        Ok(())
    }

    fn add(&mut self, key: usize, op: Timed<F::Op>) {
        if op.is_optional() {
            self.unknown += 1;
            if !self.family.keep_unknown(&op.op) {
                return;
            }
        }
        self.parts[key].ops.push(op);
    }

    /// Ends the history: what is still open is unknown. Parts in order of first
    /// use, each sorted by call.
    pub fn finish(&mut self) -> Vec<Keyed<F::Op>> {
        let mut open: Vec<(u64, Open<F::Op>)> = self.open.drain().collect();
        open.sort_by_key(|(_, o)| o.call);
        for (process, o) in open {
            if let Some(op) = o.op {
                self.parts[o.key].did = true;
                self.add(
                    o.key,
                    Timed {
                        call: o.call,
                        ret: NEVER,
                        process,
                        op,
                    },
                );
            }
        }
        for part in &mut self.parts {
            if !part.did && !part.ops.is_empty() {
                part.ops.clear();
                self.silent += 1;
            }
            part.ops.sort_unstable_by_key(|o| o.call);
        }
        std::mem::take(&mut self.parts)
    }
}
