//! The run's history, in the harness's own format: one recorder, stamps of true time.

use std::cell::RefCell;
use std::sync::Arc;

use fencepost_history::{Event, EventType, Process, Value, Writer};
use tokio::time::Instant;

use super::process;

thread_local! {
    static RECORD: RefCell<Option<Record>> = const { RefCell::new(None) };
}

struct Record {
    start: Instant,
    events: Vec<Event>,
    broken: Vec<String>,
    process: u64,
    faulted: bool,
}

/// Begins a history.
pub fn begin(start: Instant) {
    let record = Record {
        start,
        events: Vec::new(),
        broken: Vec::new(),
        process: 0,
        faulted: false,
    };
    RECORD.set(Some(record));
}

/// Ends it: the events, and the promises that clients saw broken by themselves.
pub fn end() -> (Vec<Event>, Vec<String>) {
    RECORD
        .take()
        .map_or_else(Default::default, |record| (record.events, record.broken))
}

fn with<T: Default>(act: impl FnOnce(&mut Record) -> T) -> T {
    RECORD
        .with_borrow_mut(|record| record.as_mut().map(act))
        .unwrap_or_default()
}

impl Record {
    fn time(&self) -> i64 {
        process::since(self.start).as_nanos() as i64
    }

    fn push(
        &mut self,
        process: Process,
        kind: EventType,
        f: &str,
        key: Option<&str>,
        value: Value,
        error: Option<&str>,
    ) {
        let event = Event {
            index: self.events.len() as u64,
            time: self.time(),
            process,
            kind,
            f: Arc::from(f),
            key: key.map(Arc::from),
            value,
            error: error.map(Arc::from),
        };
        self.events.push(event);
    }
}

/// A number for a new sequential caller.
pub fn process() -> u64 {
    with(|record| {
        record.process += 1;
        record.process
    })
}

/// An operation of a client begins or ends.
pub fn op(process: u64, kind: EventType, f: &str, key: &str, value: Value, error: Option<&str>) {
    with(|record| record.push(Process::Client(process), kind, f, Some(key), value, error));
}

/// An event of somebody else.
pub fn note(who: &str, f: &str, key: Option<&str>, value: Value) {
    with(|record| {
        record.faulted |= f == "fault";
        record.push(
            Process::Named(Arc::from(who)),
            EventType::Info,
            f,
            key,
            value,
            None,
        )
    });
}

/// Was there a fault already?
pub fn faulted() -> bool {
    with(|record| record.faulted)
}

/// A client saw a promise broken.
pub fn broken(what: String) {
    with(|record| {
        let at = record.time() / 1_000_000;
        record.broken.push(format!("at {at} ms: {what}"));
    });
}

/// The present moment: what is sent now was sent after the last event.
pub fn stamp() -> Value {
    let (index, time) =
        with(|record| (record.events.len().saturating_sub(1) as u64, record.time()));
    map([("index", int(index)), ("time", int(time))])
}

/// The history as `history.jsonl` has it.
pub fn text(events: &[Event]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    let _ = writer.write_all(events);
    writer.into_inner()
}

/// A value with these members.
pub fn map<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Map(
        members
            .into_iter()
            .map(|(name, value)| (Arc::from(name), value))
            .collect(),
    )
}

/// A number.
pub fn int(number: impl Into<i128>) -> Value {
    Value::Int(number.into())
}

/// A text.
pub fn word(text: &str) -> Value {
    Value::Str(Arc::from(text))
}
