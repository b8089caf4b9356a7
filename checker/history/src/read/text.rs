//! Jepsen's text logs: `history.txt`, and the `jepsen.util` lines of `jepsen.log`:
//!
//! ```text
//! INFO  jepsen.util - 3<TAB>:invoke<TAB>:write<TAB>4
//! ```
//!
//! process, type, function, value and perhaps an error, separated by tabs.

use crate::edn::parse_form;
use crate::intern::Interner;
use crate::raw::{RawEvent, RawProcess, text_of, type_of};
use crate::{Process, Value};

#[derive(Default)]
pub(crate) struct TextParser {
    interner: Interner,
}

impl TextParser {
    /// `None` for a line that is not an event: logs have many of them.
    pub fn parse(&mut self, line: &[u8]) -> Option<RawEvent> {
        let line = std::str::from_utf8(line).ok()?;
        let mut fields = line.trim_end().split('\t').map(str::trim);
        let mut before = fields.next()?;
        let kind = loop {
            let field = fields.next()?;
            match field.strip_prefix(':').and_then(type_of) {
                Some(kind) => break kind,
                None => before = field,
            }
        };
        let process = self.process(before.split_whitespace().next_back()?)?;
        let f = fields.next()?.trim_start_matches(':');
        Some(RawEvent {
            process: RawProcess::Is(process),
            kind: Some(kind),
            f: Some(self.interner.get(f)),
            value: fields.next().map(|t| self.value(t)).unwrap_or_default(),
            error: fields
                .next()
                .filter(|t| !t.is_empty())
                .map(|t| text_of(self.value(t))),
            ..RawEvent::default()
        })
    }

    fn process(&mut self, word: &str) -> Option<Process> {
        if let Ok(p) = word.parse() {
            return Some(Process::Client(p));
        }
        let name = word.strip_prefix(':')?;
        (!name.is_empty()).then(|| Process::Named(self.interner.get(name)))
    }

    fn value(&mut self, text: &str) -> Value {
        parse_form(text, &mut self.interner).unwrap_or_else(|| {
            if text.is_empty() {
                Value::Null
            } else {
                Value::Str(self.interner.get(text))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::EventType;

    #[test]
    fn lines_of_both_logs() {
        let mut p = TextParser::default();
        for line in [
            "INFO  jepsen.util - 2\t:invoke\t:cas\t[3 0]",
            "2\t:invoke\t:cas\t[3 0]\t:oops",
            "2023-01-01 00:00:00,000{GMT}\tINFO\t[jepsen worker 2] jepsen.util: 2\t:invoke\t:cas\t[3 0]",
        ] {
            let e = p.parse(line.as_bytes()).unwrap();
            assert_eq!(e.kind, Some(EventType::Invoke));
            assert_eq!(e.f.as_deref(), Some("cas"));
            assert_eq!(e.value, Value::List(vec![Value::Int(3), Value::Int(0)]));
            assert!(matches!(e.process, RawProcess::Is(Process::Client(2))));
        }
        let e = p
            .parse(b"INFO  jepsen.util - :nemesis\t:info\t:start\tnil")
            .unwrap();
        assert!(matches!(e.process, RawProcess::Is(Process::Named(_))));
        assert!(
            p.parse(b"INFO jepsen.core - Everything looks good!")
                .is_none()
        );
    }
}
