//! One line of a JSON history.

use std::sync::Arc;

use super::parse::{Bad, Cursor};
use crate::intern::Interner;
use crate::raw::{RawEvent, RawProcess, type_of};
use crate::{EventType, Process, Value};

#[derive(Default)]
pub(crate) struct EventParser {
    interner: Interner,
}

impl EventParser {
    /// Reads one event; `Err` says what is wrong with the line.
    pub fn parse(&mut self, line: &[u8]) -> Result<RawEvent, String> {
        let text = std::str::from_utf8(line)
            .map_err(|e| format!("column {}: not UTF-8", e.valid_up_to() + 1))?;
        self.fields(text).map_err(|b| b.text())
    }

    fn fields(&mut self, text: &str) -> Result<RawEvent, Bad> {
        let mut c = Cursor::new(text);
        let mut e = RawEvent::default();
        c.expect(b'{', "expected an object, one event a line")?;
        if !c.take(b'}') {
            loop {
                let name = c.string()?;
                c.expect(b':', "expected ':'")?;
                c.space();
                self.field(&mut c, &name, &mut e)?;
                if c.take(b'}') {
                    break;
                }
                c.expect(b',', "expected ',' or '}'")?;
            }
        }
        c.space();
        c.end()?;
        Ok(e)
    }

    #[inline]
    fn field(&mut self, c: &mut Cursor<'_>, name: &str, e: &mut RawEvent) -> Result<(), Bad> {
        match name {
            "index" => e.index = self.integer(c, "index must be a whole number from 0")?,
            "time" => e.time = self.integer(c, "time must be whole nanoseconds")?,
            "process" => e.process = self.process(c)?,
            "type" => e.kind = Some(self.kind(c)?),
            "f" => e.f = self.optional_str(c, "f must be a string")?,
            "key" => {
                e.key = match c.value(&mut self.interner, 0)? {
                    Value::Null => None,
                    other => Some(crate::raw::text_of(other)),
                }
            }
            "value" => e.value = c.value(&mut self.interner, 0)?,
            "error" => {
                e.error = match c.value(&mut self.interner, 0)? {
                    Value::Null => None,
                    other => Some(crate::raw::text_of(other)),
                }
            }
            _ => drop(c.value(&mut self.interner, 0)?),
        }
        Ok(())
    }

    #[inline]
    fn integer<T: TryFrom<i128> + TryFrom<u64>>(
        &mut self,
        c: &mut Cursor<'_>,
        what: &'static str,
    ) -> Result<Option<T>, Bad> {
        if let Some(n) = c.small() {
            return match T::try_from(n) {
                Ok(t) => Ok(Some(t)),
                Err(_) => c.bad(what),
            };
        }
        match c.value(&mut self.interner, 0)? {
            Value::Null => Ok(None),
            Value::Int(i) => match T::try_from(i) {
                Ok(t) => Ok(Some(t)),
                Err(_) => c.bad(what),
            },
            _ => c.bad(what),
        }
    }

    #[inline]
    fn process(&mut self, c: &mut Cursor<'_>) -> Result<RawProcess, Bad> {
        if let Some(n) = c.small() {
            return Ok(RawProcess::Is(Process::Client(n)));
        }
        match RawProcess::from_value(c.value(&mut self.interner, 0)?) {
            Some(p) => Ok(p),
            None => c.bad("process must be a number or a name"),
        }
    }

    fn kind(&mut self, c: &mut Cursor<'_>) -> Result<EventType, Bad> {
        // A completion that is written down as null never came: unknown.
        if c.peek() == b'n' && c.word("null") {
            return Ok(EventType::Info);
        }
        let word = c.string()?;
        match type_of(&word) {
            Some(k) => Ok(k),
            None => c.bad("type must be invoke, ok, fail or info"),
        }
    }

    fn optional_str(
        &mut self,
        c: &mut Cursor<'_>,
        what: &'static str,
    ) -> Result<Option<Arc<str>>, Bad> {
        match c.peek() {
            b'"' => Ok(Some(self.interner.get(&c.string()?))),
            b'n' if c.word("null") => Ok(None),
            _ => c.bad(what),
        }
    }
}
