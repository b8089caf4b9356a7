//! Reading `history.jsonl` line by line, forgivingly: a report must come out
//! of a torn or partly unreadable file too, and say what was wrong with it.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use fencepost_history::{Event, EventType, Process, Value};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::ReportError;

/// Longest line that is kept; longer ones count as unreadable.
const MAX_LINE: usize = 16 << 20;

/// What reading a file of lines came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadState {
    pub lines: u64,
    /// Lines that were no events, and the number of the first (from 1).
    pub unreadable: u64,
    pub first_unreadable: Option<u64>,
    /// The last line had no end: the writer was stopped in the middle of it.
    pub torn: bool,
}

/// Calls `each` with every event and its line, until it returns `false`.
/// `Ok(None)` when there is no such file.
pub fn events(
    path: &Path,
    mut each: impl FnMut(Event, &str) -> bool,
) -> Result<Option<ReadState>, ReportError> {
    let mut next_index = 0;
    lines(path, |text| match parse(text, next_index) {
        Some(event) => {
            next_index = event.index.saturating_add(1);
            Some(each(event, text))
        }
        None => None,
    })
}

/// Calls `each` with every non-empty line: `Some(go_on)`, or `None` when the
/// line was unreadable.
pub fn lines(
    path: &Path,
    mut each: impl FnMut(&str) -> Option<bool>,
) -> Result<Option<ReadState>, ReportError> {
    let read = |source| ReportError::Read {
        path: path.to_path_buf(),
        source,
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(read(e)),
    };
    let mut input = BufReader::with_capacity(1 << 18, file);
    let mut state = ReadState::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line).map_err(read)? == 0 {
            return Ok(Some(state));
        }
        state.lines += 1;
        let ended = line.ends_with(b"\n");
        let text = std::str::from_utf8(&line).unwrap_or("").trim();
        if text.is_empty() && line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let answer = if line.len() > MAX_LINE || text.is_empty() {
            None
        } else {
            each(text)
        };
        match answer {
            Some(true) => {}
            Some(false) => return Ok(Some(state)),
            None if !ended => state.torn = true,
            None => {
                state.unreadable += 1;
                state.first_unreadable.get_or_insert(state.lines);
            }
        }
    }
}

#[derive(serde::Deserialize)]
struct Line {
    index: Option<u64>,
    time: Option<i64>,
    process: Exact,
    #[serde(rename = "type")]
    kind: Kind,
    f: Exact,
    #[serde(default)]
    key: Exact,
    #[serde(default)]
    value: Exact,
    #[serde(default)]
    error: Exact,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Invoke,
    Ok,
    Fail,
    Info,
}

fn parse(text: &str, next_index: u64) -> Option<Event> {
    let line: Line = serde_json::from_str(text).ok()?;
    Some(Event {
        index: line.index.unwrap_or(next_index),
        time: line.time.unwrap_or(0),
        process: match line.process.0 {
            Value::Int(i) => Process::Client(u64::try_from(i).ok()?),
            Value::Str(s) => Process::Named(s),
            _ => return None,
        },
        kind: match line.kind {
            Kind::Invoke => EventType::Invoke,
            Kind::Ok => EventType::Ok,
            Kind::Fail => EventType::Fail,
            Kind::Info => EventType::Info,
        },
        f: text_of(line.f.0)?,
        key: text_of(line.key.0),
        value: line.value.0,
        error: text_of(line.error.0),
    })
}

fn text_of(value: Value) -> Option<Arc<str>> {
    match value {
        Value::Null => None,
        Value::Str(s) => Some(s),
        other => Some(plain(&other).into()),
    }
}

/// A value as JSON text, strings without quotes.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Str(s) => s.to_string(),
        other => json(other).to_string(),
    }
}

/// The same value as `serde_json` knows it (integers beyond 64 bits as text).
pub fn json(value: &Value) -> serde_json::Value {
    use serde_json::Value as J;
    match value {
        Value::Null => J::Null,
        Value::Bool(b) => J::Bool(*b),
        Value::Int(i) => match (u64::try_from(*i), i64::try_from(*i)) {
            (Ok(u), _) => J::from(u),
            (_, Ok(i)) => J::from(i),
            _ => J::from(i.to_string()),
        },
        Value::Float(x) => J::from(*x),
        Value::Str(s) => J::from(&**s),
        Value::List(items) => items.iter().map(json).collect(),
        Value::Map(members) => {
            J::Object(members.iter().map(|(k, v)| (k.to_string(), json(v))).collect())
        }
    }
}

/// A [`Value`] as it comes from JSON, integers exact at 64 bits.
#[derive(Default)]
pub struct Exact(pub Value);

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ExactVisitor).map(Exact)
    }
}

struct ExactVisitor;

impl<'de> Visitor<'de> for ExactVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, b: bool) -> Result<Value, E> {
        Ok(Value::Bool(b))
    }
    fn visit_i64<E>(self, i: i64) -> Result<Value, E> {
        Ok(Value::Int(i.into()))
    }
    fn visit_u64<E>(self, u: u64) -> Result<Value, E> {
        Ok(Value::Int(u.into()))
    }
    fn visit_f64<E>(self, x: f64) -> Result<Value, E> {
        Ok(Value::Float(x))
    }
    fn visit_str<E>(self, s: &str) -> Result<Value, E> {
        Ok(Value::Str(s.into()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Exact(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Vec::new();
        while let Some((name, Exact(value))) = map.next_entry::<Arc<str>, Exact>()? {
            members.push((name, value));
        }
        Ok(Value::Map(members))
    }
}
