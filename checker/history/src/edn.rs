//! EDN, as much of it as printed Jepsen histories use: nil, booleans, numbers, strings,
//! characters, keywords, symbols, lists, vectors, sets, maps, tags, comments, discards
//! and metadata. Keywords and symbols become strings without their colon; a tag is dropped and its
//! value kept. `"key":` with the colon close behind is read as JSON means it, so a JSON array works too.
//!
//! Source: the edn-format specification (github.com/edn-format/edn).

use std::sync::Arc;

use crate::Value;
use crate::intern::Interner;

const DEEPEST: u32 = 96;

/// Reads one EDN form; `None` when the text holds none or more than one.
pub(crate) fn parse_form(text: &str, interner: &mut Interner) -> Option<Value> {
    let mut e = Edn::new(text);
    let v = e.form(interner, 0).ok().flatten()?;
    match e.form(interner, 0) {
        Ok(None) => Some(v),
        _ => None,
    }
}

pub(crate) struct EdnBad {
    pub line: u64,
    pub what: &'static str,
    /// The text ended inside a form.
    pub torn: bool,
}

/// A position in an EDN text.
pub(crate) struct Edn<T: AsRef<str>> {
    text: T,
    at: usize,
    pub line: u64,
}

type Parsed<T> = Result<T, EdnBad>;

impl<T: AsRef<str>> Edn<T> {
    pub fn new(text: T) -> Self {
        Edn {
            text,
            at: 0,
            line: 1,
        }
    }

    fn bytes(&self) -> &[u8] {
        self.text.as_ref().as_bytes()
    }

    pub fn peek(&self) -> Option<u8> {
        self.bytes().get(self.at).copied()
    }

    pub fn step(&mut self) {
        self.line += u64::from(self.peek() == Some(b'\n'));
        self.at += 1;
    }

    pub fn bad<V>(&self, what: &'static str) -> Parsed<V> {
        Err(EdnBad {
            line: self.line,
            what,
            torn: self.at >= self.bytes().len(),
        })
    }

    /// Over whitespace, commas, comments and discarded forms.
    pub fn space(&mut self, interner: &mut Interner, depth: u32) -> Parsed<()> {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\r' | b'\n' | b',') => self.step(),
                Some(b';') => {
                    while self.peek().is_some_and(|b| b != b'\n') {
                        self.step();
                    }
                }
                Some(b'#') if self.bytes().get(self.at + 1) == Some(&b'_') => {
                    self.at += 2;
                    if self.form(interner, depth + 1)?.is_none() {
                        return self.bad("nothing to discard after #_");
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    /// The next form; `None` at a closing bracket or at the end of the text.
    pub fn form(&mut self, interner: &mut Interner, depth: u32) -> Parsed<Option<Value>> {
        if depth > DEEPEST {
            return self.bad("nested too deeply");
        }
        self.space(interner, depth)?;
        let Some(b) = self.peek() else {
            return Ok(None);
        };
        Ok(Some(match b {
            b')' | b']' | b'}' => return Ok(None),
            b'(' => self.sequence(b')', interner, depth)?,
            b'[' => self.sequence(b']', interner, depth)?,
            b'{' => self.map(interner, depth)?,
            b'"' => Value::Str(interner.get(&self.string()?)),
            b'#' => self.dispatch(interner, depth)?,
            b'^' => {
                self.step();
                self.inner(interner, depth)?;
                self.inner(interner, depth)?
            }
            b'\'' | b'`' | b'@' | b'~' => {
                self.step();
                self.inner(interner, depth)?
            }
            b'\\' => self.character(interner),
            b':' => {
                self.step();
                let word = self.word();
                Value::Str(interner.get(word))
            }
            _ => self.atom(interner)?,
        }))
    }

    fn inner(&mut self, interner: &mut Interner, depth: u32) -> Parsed<Value> {
        match self.form(interner, depth + 1)? {
            Some(v) => Ok(v),
            None => self.bad("a value is missing"),
        }
    }

    fn sequence(&mut self, close: u8, interner: &mut Interner, depth: u32) -> Parsed<Value> {
        self.step();
        let mut items = Vec::new();
        while let Some(v) = self.form(interner, depth + 1)? {
            items.push(v);
        }
        if self.peek() != Some(close) {
            return self.bad("a list does not end, or with the wrong bracket");
        }
        self.step();
        Ok(Value::List(items))
    }

    fn map(&mut self, interner: &mut Interner, depth: u32) -> Parsed<Value> {
        self.step();
        let mut members: Vec<(Arc<str>, Value)> = Vec::new();
        while let Some(k) = self.form(interner, depth + 1)? {
            if self.peek() == Some(b':') && self.bytes()[self.at - 1] == b'"' {
                self.step();
            }
            let v = self.inner(interner, depth)?;
            members.push((crate::raw::text_of(k), v));
        }
        if self.peek() != Some(b'}') {
            return self.bad("a map does not end, or with the wrong bracket");
        }
        self.step();
        Ok(Value::Map(members))
    }

    fn dispatch(&mut self, interner: &mut Interner, depth: u32) -> Parsed<Value> {
        self.step();
        match self.peek() {
            Some(b'{') => self.sequence(b'}', interner, depth),
            Some(b'(') => self.sequence(b')', interner, depth),
            Some(b'"') => Ok(Value::Str(interner.get(&self.string()?))),
            Some(b'#') => {
                self.step();
                let word = self.word();
                Ok(Value::Str(interner.get(word)))
            }
            _ => {
                if self.word().is_empty() {
                    return self.bad("unknown reader macro after #");
                }
                self.inner(interner, depth)
            }
        }
    }

    fn string(&mut self) -> Parsed<String> {
        self.step();
        let mut s: Vec<u8> = Vec::new();
        loop {
            let Some(b) = self.peek() else {
                return self.bad("a string does not end");
            };
            self.step();
            match b {
                b'"' => break,
                b'\\' => {
                    let Some(e) = self.peek() else {
                        return self.bad("a string does not end");
                    };
                    self.step();
                    self.escape(e, &mut s);
                }
                _ => s.push(b),
            }
        }
        Ok(String::from_utf8_lossy(&s).into_owned())
    }

    fn escape(&mut self, e: u8, s: &mut Vec<u8>) {
        match e {
            b'n' => s.push(b'\n'),
            b't' => s.push(b'\t'),
            b'r' => s.push(b'\r'),
            b'b' => s.push(8),
            b'f' => s.push(12),
            b'u' => {
                let hex = self.text.as_ref().get(self.at..self.at + 4);
                let code = hex.and_then(|h| u32::from_str_radix(h, 16).ok());
                if code.is_some() {
                    self.at += 4;
                }
                let c = code.and_then(char::from_u32).unwrap_or('\u{fffd}');
                s.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            other => s.push(other),
        }
    }

    fn character(&mut self, interner: &mut Interner) -> Value {
        self.step();
        let from = self.at;
        // One character at least, whatever it is; then the rest of a name like \newline.
        if let Some(c) = self.text.as_ref()[from..].chars().next() {
            self.line += u64::from(c == '\n');
            self.at += c.len_utf8();
        }
        self.word();
        Value::Str(interner.get(&self.text.as_ref()[from..self.at]))
    }

    /// Up to the next delimiter.
    fn word(&mut self) -> &str {
        let from = self.at;
        while self.peek().is_some_and(|b| {
            !matches!(
                b,
                b' ' | b'\t'
                    | b'\r'
                    | b'\n'
                    | b','
                    | b'"'
                    | b';'
                    | b'('
                    | b')'
                    | b'['
                    | b']'
                    | b'{'
                    | b'}'
            )
        }) {
            self.at += 1;
        }
        &self.text.as_ref()[from..self.at]
    }

    fn atom(&mut self, interner: &mut Interner) -> Parsed<Value> {
        let word = self.word();
        Ok(match word {
            "" => return self.bad("expected a value"),
            "nil" | "null" => Value::Null,
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => number(word).unwrap_or_else(|| Value::Str(interner.get(word))),
        })
    }
}

fn number(word: &str) -> Option<Value> {
    let first = word.trim_start_matches(['-', '+']).bytes().next()?;
    if !first.is_ascii_digit() {
        return None;
    }
    if let Ok(i) = word.trim_end_matches('N').parse() {
        return Some(Value::Int(i));
    }
    word.trim_end_matches('M').parse().ok().map(Value::Float)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn json(text: &str) -> Option<String> {
        let v = parse_form(text, &mut Interner::default())?;
        let mut out = Vec::new();
        crate::json::write_value(&mut out, &v);
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn forms() {
        for (edn, want) in [
            ("nil", "null"),
            (":timed-out", "\"timed-out\""),
            ("[3 0]", "[3,0]"),
            ("(1, 2N 1.5M) ; said", "[1,2,1.5]"),
            ("#{1}", "[1]"),
            ("{:a 1, \"b\" [nil true]}", r#"{"a":1,"b":[null,true]}"#),
            (r#"{"a":1,"b":null}"#, r#"{"a":1,"b":null}"#),
            ("#jepsen.history.Op{:index 0}", r#"{"index":0}"#),
            ("#inst \"2020\"", "\"2020\""),
            ("[1 #_ 2 3]", "[1,3]"),
            ("^{:m 1} [x/y]", "[\"x/y\"]"),
            (r#""a\n\u0041\"""#, r#""a\nA\"""#),
            (r"\c", "\"c\""),
            ("18446744073709551615", "18446744073709551615"),
        ] {
            assert_eq!(json(edn).as_deref(), Some(want), "{edn}");
        }
        for bad in ["", "[1", "1 2", "{:a}", "[1)", "#", "\"x"] {
            assert_eq!(json(bad), None, "{bad}");
        }
        assert_eq!(json(&"[".repeat(100_000)), None);
    }
}
