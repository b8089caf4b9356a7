//! The first pass over a history: counts, latencies, faults and phases, and
//! the events that the verdicts point at. Memory does not grow with the history.

pub mod faults;
pub mod latency;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use fencepost_history::{Event, EventType, Process, Value, names};

use crate::words::clip;
use faults::Faults;
use latency::Latencies;

/// Different errors, exits and locks that are counted by name.
const MAX_ERRORS: usize = 40;
const MAX_EXITS: usize = 60;
const MAX_PHASES: usize = 60;
const MAX_LOCKS: usize = 20_000;
/// Calls in flight at once that are followed; a controller has far fewer.
const MAX_OPEN: usize = 1 << 20;

/// What one pass over the history gives.
#[derive(Default)]
pub struct Scan {
    pub events: u64,
    /// First and last stamps, nanoseconds since the run began.
    pub first: Option<i64>,
    pub last: i64,
    pub latencies: Latencies,
    pub faults: Faults,
    pub phases: Vec<(String, i64)>,
    /// Errors by operation and text.
    pub errors: BTreeMap<(String, String), u64>,
    pub exits: Vec<(String, i64, String, bool)>,
    pub claims: u64,
    pub renewals: u64,
    pub losses: u64,
    /// Grants by lock name.
    pub locks: HashMap<Arc<str>, u64>,
    /// A lock that a worker used when the first fault hit that worker.
    pub hit: Option<Arc<str>>,
    /// Events asked for by index.
    pub shown: BTreeMap<u64, Event>,
    wanted: BTreeSet<u64>,
    open: HashMap<u64, Open>,
    /// Lock that each worker last used.
    using: HashMap<u64, Arc<str>>,
}

struct Open {
    f: Arc<str>,
    start: i64,
    key: Option<Arc<str>>,
    worker: Option<u64>,
}

impl Scan {
    /// A scan that keeps the events with the indexes in `wanted`.
    pub fn new(wanted: BTreeSet<u64>) -> Scan {
        Scan {
            wanted,
            ..Scan::default()
        }
    }

    pub fn push(&mut self, event: Event) {
        self.events += 1;
        self.first.get_or_insert(event.time);
        self.last = self.last.max(event.time);
        match &event.process {
            Process::Client(id) => self.operation(*id, &event),
            Process::Named(name) => self.named(name, &event),
        }
        if self.wanted.contains(&event.index) {
            self.shown.insert(event.index, event);
        }
    }

    /// Counts what was never answered.
    pub fn finish(&mut self) {
        for (_, open) in self.open.drain() {
            self.latencies.unknown(&open.f);
        }
    }

    fn operation(&mut self, process: u64, event: &Event) {
        if event.kind == EventType::Invoke {
            let start = event
                .value
                .get("due")
                .and_then(Value::as_i64)
                .unwrap_or(event.time);
            self.latencies.invoked(&event.f, start);
            if self.open.len() < MAX_OPEN {
                let open = Open {
                    f: event.f.clone(),
                    start,
                    key: event.key.clone(),
                    worker: event.value.get("worker").and_then(Value::as_u64),
                };
                if let Some(lost) = self.open.insert(process, open) {
                    self.latencies.unknown(&lost.f);
                }
            }
            return;
        }
        let open = self.open.remove(&process);
        let start = open.as_ref().map_or(event.time, |o| o.start);
        match event.kind {
            EventType::Ok => self.latencies.ok(&event.f, start, event.time),
            EventType::Fail => self.latencies.failed(&event.f),
            EventType::Info | EventType::Invoke => self.latencies.unknown(&event.f),
        }
        if event.kind == EventType::Ok && &*event.f == names::ACQUIRE {
            if let Some(Open {
                key: Some(key),
                worker: Some(worker),
                ..
            }) = open
            {
                self.using.insert(worker, key);
            }
            let key = event.key.clone().unwrap_or_else(|| "".into());
            if self.locks.len() < MAX_LOCKS || self.locks.contains_key(&key) {
                *self.locks.entry(key).or_default() += 1;
            }
        }
        if let (EventType::Fail | EventType::Info, Some(error)) = (event.kind, &event.error) {
            let what = (event.f.to_string(), error.chars().take(120).collect());
            if self.errors.len() < MAX_ERRORS || self.errors.contains_key(&what) {
                *self.errors.entry(what).or_default() += 1;
            }
        }
    }

    fn named(&mut self, name: &str, event: &Event) {
        let text = |member: &str| event.value.get(member).and_then(Value::as_str);
        match &*event.f {
            names::FAULT => {
                self.faults.push(event);
                self.note_hit();
            }
            names::POINT => {
                let process = event.value.get("process").and_then(Value::as_u64);
                let open = process.and_then(|p| self.open.get(&p));
                if let Some(Open {
                    key: Some(key),
                    worker: Some(worker),
                    ..
                }) = open
                {
                    self.using.insert(*worker, key.clone());
                }
            }
            names::PHASE if self.phases.len() < MAX_PHASES => {
                let phase = clip(text("phase").unwrap_or("?"), 40);
                self.phases.push((phase, event.time));
            }
            names::EXIT if self.exits.len() < MAX_EXITS => {
                let reason = clip(text("reason").unwrap_or("no reason given"), 300);
                let expected = event.value.get("expected").and_then(Value::as_bool);
                let expected = expected.unwrap_or(false);
                self.exits
                    .push((name.to_string(), event.time, reason, expected));
            }
            names::CLAIMS => self.claims += 1,
            names::RENEW => self.renewals += 1,
            names::LOST => self.losses += 1,
            _ => {}
        }
    }

    fn note_hit(&mut self) {
        let first = self.faults.all.iter().find(|f| f.applied());
        if let (None, Some(fault)) = (&self.hit, first) {
            let mut used = self.using.iter().filter(|(w, _)| fault.affects_worker(**w));
            self.hit = used.next().map(|(_, key)| key.clone());
        }
    }

    /// When load began and ended, from the phases; the whole history without them.
    pub fn load_span(&self) -> (i64, i64) {
        let at = |wanted: &[&str]| {
            let found = self
                .phases
                .iter()
                .find(|(p, _)| wanted.contains(&p.as_str()));
            found.map(|(_, t)| *t)
        };
        let from = at(&["load"]).or(self.first).unwrap_or(0);
        let to = at(&["drain", "final", "interrupted", "end"]).unwrap_or(self.last);
        (from, to.max(from))
    }
}
