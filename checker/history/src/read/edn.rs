//! Events of a Jepsen `history.edn`: a vector or list of maps, or one map a line.

use super::source::Source;
use super::stream::Stop;
use crate::edn::{Edn, EdnBad};
use crate::intern::Interner;
use crate::raw::{RawEvent, RawProcess, text_of, type_of};
use crate::{ReadError, Value};

/// Reads the text as a whole (EDN histories are small), the events one by one.
pub(crate) struct EdnEvents {
    edn: Edn<String>,
    interner: Interner,
    /// The bracket that ends the history, once its opening one was read.
    close: Option<u8>,
    begun: bool,
}

pub(crate) enum Next {
    Event(RawEvent, u64),
    End,
    /// The text ends inside an event that began on this line.
    Torn(u64),
}

impl EdnEvents {
    pub fn new(mut source: Source) -> Result<EdnEvents, Stop> {
        let mut bytes = Vec::new();
        match std::io::Read::read_to_end(&mut source, &mut bytes) {
            Err(e) if e.kind() != std::io::ErrorKind::UnexpectedEof => return Err(Stop::Io(e)),
            _ => {}
        }
        let text = String::from_utf8(bytes).map_err(|e| {
            let good = e.utf8_error().valid_up_to();
            let line = e.as_bytes()[..good].iter().filter(|b| **b == b'\n').count() + 1;
            Stop::Read(ReadError::malformed(line as u64, "not UTF-8"))
        })?;
        Ok(EdnEvents {
            edn: Edn::new(text),
            interner: Interner::default(),
            close: None,
            begun: false,
        })
    }

    pub fn next(&mut self) -> Result<Next, ReadError> {
        if !self.begun {
            self.begun = true;
            self.spaces()?;
            self.close = match self.edn.peek() {
                Some(b'[') => Some(b']'),
                Some(b'(') => Some(b')'),
                _ => None,
            };
            if self.close.is_some() {
                self.edn.step();
            }
        }
        self.spaces()?;
        let line = self.edn.line;
        match self.edn.form(&mut self.interner, 0) {
            Ok(Some(Value::Map(members))) => Ok(Next::Event(event(members, line)?, line)),
            Ok(Some(_)) => Err(ReadError::malformed(line, "expected a map, one an event")),
            Ok(None) => self.end(line),
            Err(EdnBad { torn: true, .. }) => Ok(Next::Torn(line)),
            Err(bad) => Err(ReadError::malformed(bad.line, bad.what)),
        }
    }

    fn spaces(&mut self) -> Result<(), ReadError> {
        match self.edn.space(&mut self.interner, 0) {
            Ok(()) => Ok(()),
            Err(bad) if bad.torn => Ok(()),
            Err(bad) => Err(ReadError::malformed(bad.line, bad.what)),
        }
    }

    fn end(&mut self, line: u64) -> Result<Next, ReadError> {
        match (self.edn.peek(), self.close) {
            (None, None) => Ok(Next::End),
            (None, Some(_)) => Ok(Next::Torn(line)),
            (Some(b), Some(close)) if b == close => {
                self.edn.step();
                self.close = None;
                self.spaces()?;
                match self.edn.peek() {
                    None => Ok(Next::End),
                    Some(_) => Err(ReadError::malformed(
                        self.edn.line,
                        "something follows the end of the history",
                    )),
                }
            }
            _ => Err(ReadError::malformed(line, "a closing bracket too many")),
        }
    }
}

fn event(members: Vec<(std::sync::Arc<str>, Value)>, line: u64) -> Result<RawEvent, ReadError> {
    let mut e = RawEvent::default();
    let bad = |what| Err(ReadError::malformed(line, what));
    for (name, v) in members {
        match (&*name, v) {
            (_, Value::Null) => {}
            ("index", Value::Int(i)) => match u64::try_from(i) {
                Ok(i) => e.index = Some(i),
                // Jepsen writes -1 where an index was never assigned.
                Err(_) if i == -1 => {}
                Err(_) => return bad("index must be a whole number from 0"),
            },
            ("time", Value::Int(t)) => match i64::try_from(t) {
                Ok(t) => e.time = Some(t),
                Err(_) => return bad("time must be whole nanoseconds"),
            },
            ("index", _) => return bad("index must be a whole number from 0"),
            ("time", _) => return bad("time must be whole nanoseconds"),
            ("process", v) => match RawProcess::from_value(v) {
                Some(p) => e.process = p,
                None => return bad("process must be a number or a name"),
            },
            ("type", v) => match v.as_str().and_then(type_of) {
                Some(k) => e.kind = Some(k),
                None => return bad("type must be invoke, ok, fail or info"),
            },
            ("f", v) => e.f = Some(text_of(v)),
            ("key", v) => e.key = Some(text_of(v)),
            ("error", v) => e.error = Some(text_of(v)),
            ("value", v) => e.value = v,
            _ => {}
        }
    }
    Ok(e)
}
