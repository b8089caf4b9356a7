//! An event as a file has it, before it gets its index and its rank.

use std::sync::Arc;

use crate::{EventType, Process, Value};

#[derive(Default)]
pub(crate) struct RawEvent {
    pub index: Option<u64>,
    pub time: Option<i64>,
    pub process: RawProcess,
    pub kind: Option<EventType>,
    pub f: Option<Arc<str>>,
    pub key: Option<Arc<str>>,
    pub value: Value,
    pub error: Option<Arc<str>>,
}

#[derive(Default)]
pub(crate) enum RawProcess {
    #[default]
    Absent,
    Is(Process),
}

impl RawProcess {
    /// `None` when the value cannot name a process. Decimal strings are numbers.
    pub fn from_value(v: Value) -> Option<RawProcess> {
        match v {
            Value::Null => Some(RawProcess::Absent),
            Value::Int(i) => u64::try_from(i)
                .ok()
                .map(|p| RawProcess::Is(Process::Client(p))),
            Value::Str(s) if s.bytes().all(|b| b.is_ascii_digit()) && !s.is_empty() => {
                s.parse().ok().map(|p| RawProcess::Is(Process::Client(p)))
            }
            Value::Str(s) if !s.is_empty() => Some(RawProcess::Is(Process::Named(s))),
            _ => None,
        }
    }
}

pub(crate) fn type_of(word: &str) -> Option<EventType> {
    match word {
        "invoke" => Some(EventType::Invoke),
        "ok" => Some(EventType::Ok),
        "fail" => Some(EventType::Fail),
        "info" => Some(EventType::Info),
        _ => None,
    }
}

/// A string as it is, anything else as its JSON text: errors and keys of other
/// tools are structured at times.
pub(crate) fn text_of(v: Value) -> Arc<str> {
    match v {
        Value::Str(s) => s,
        other => {
            let mut out = Vec::new();
            crate::json::write_value(&mut out, &other);
            Arc::from(String::from_utf8_lossy(&out))
        }
    }
}
