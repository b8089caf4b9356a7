//! A small recursive-descent JSON reader over one line.

use std::borrow::Cow;
use std::sync::Arc;

use crate::Value;
use crate::intern::Interner;

/// Deeper nesting than this is refused rather than risking the stack.
const DEEPEST: u32 = 96;

/// What was wrong, and at which byte of the line.
pub(crate) struct Bad {
    pub at: usize,
    pub what: &'static str,
}

impl Bad {
    pub fn text(&self) -> String {
        format!("column {}: {}", self.at + 1, self.what)
    }
}

/// Reads one JSON value.
///
/// # Errors
/// Says the column and what was expected there.
pub fn parse_value(text: &str) -> Result<Value, String> {
    ValueParser::default().parse(text)
}

/// Reads many JSON values, sharing the strings that they repeat.
#[derive(Default)]
pub struct ValueParser {
    interner: Interner,
}

impl ValueParser {
    /// # Errors
    /// Says the column and what was expected there.
    pub fn parse(&mut self, text: &str) -> Result<Value, String> {
        let mut c = Cursor::new(text);
        let parsed = c.value(&mut self.interner, 0).and_then(|v| {
            c.space();
            c.end().map(|()| v)
        });
        parsed.map_err(|b| b.text())
    }
}

pub(crate) struct Cursor<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a str) -> Self {
        Cursor {
            text,
            bytes: text.as_bytes(),
            at: 0,
        }
    }

    pub fn bad<T>(&self, what: &'static str) -> Result<T, Bad> {
        Err(Bad { at: self.at, what })
    }

    #[inline]
    pub fn peek(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    #[inline]
    pub fn space(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\r' | b'\n') {
            self.at += 1;
        }
    }

    pub fn end(&self) -> Result<(), Bad> {
        if self.at == self.bytes.len() {
            Ok(())
        } else {
            self.bad("something follows the end of the object")
        }
    }

    #[inline]
    pub fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), Bad> {
        self.space();
        if self.peek() == byte {
            self.at += 1;
            Ok(())
        } else {
            self.bad(what)
        }
    }

    /// Steps over `byte` if it comes next.
    #[inline]
    pub fn take(&mut self, byte: u8) -> bool {
        self.space();
        let here = self.peek() == byte;
        self.at += usize::from(here);
        here
    }

    /// A string; borrowed from the line unless it has escapes.
    #[inline]
    pub fn string(&mut self) -> Result<Cow<'a, str>, Bad> {
        self.expect(b'"', "expected a string")?;
        let from = self.at;
        self.plain();
        loop {
            match self.peek() {
                b'"' => {
                    let s = &self.text[from..self.at];
                    self.at += 1;
                    return Ok(Cow::Borrowed(s));
                }
                b'\\' => return self.escaped(from).map(Cow::Owned),
                0..=0x1f => return self.bad("the string does not end"),
                _ => self.at += 1,
            }
        }
    }

    /// Over eight bytes at a time that are neither quote, backslash nor control (bit tricks of "Bit
    /// Twiddling Hacks", S. E. Anderson: a zero byte in a word).
    #[inline]
    fn plain(&mut self) {
        const ONES: u64 = 0x0101_0101_0101_0101;
        const HIGHS: u64 = 0x8080_8080_8080_8080;
        let zero = |w: u64| w.wrapping_sub(ONES) & !w & HIGHS;
        while let Some(chunk) = self.bytes.get(self.at..self.at + 8) {
            let Ok(eight) = <[u8; 8]>::try_from(chunk) else {
                return;
            };
            let w = u64::from_le_bytes(eight);
            let control = w.wrapping_sub(ONES * 0x20) & !w & HIGHS;
            let stop = zero(w ^ (ONES * 0x22)) | zero(w ^ (ONES * 0x5c)) | control;
            if stop != 0 {
                self.at += stop.trailing_zeros() as usize / 8;
                return;
            }
            self.at += 8;
        }
    }

    fn escaped(&mut self, from: usize) -> Result<String, Bad> {
        let mut s = self.text[from..self.at].to_owned();
        let mut plain = self.at;
        loop {
            match self.peek() {
                b'"' => {
                    s.push_str(&self.text[plain..self.at]);
                    self.at += 1;
                    return Ok(s);
                }
                b'\\' => {
                    s.push_str(&self.text[plain..self.at]);
                    self.at += 1;
                    s.push(self.escape()?);
                    plain = self.at;
                }
                0..=0x1f => return self.bad("the string does not end"),
                _ => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Result<char, Bad> {
        let c = self.peek();
        self.at += 1;
        Ok(match c {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let high = self.hex4()?;
                let pair =
                    (0xd800..0xdc00).contains(&high) && self.bytes[self.at..].starts_with(b"\\u");
                if !pair {
                    return Ok(char::from_u32(high).unwrap_or('\u{fffd}'));
                }
                self.at += 2;
                let low = self.hex4()?;
                let code = 0x10000 + ((high - 0xd800) << 10) + (low.wrapping_sub(0xdc00) & 0x3ff);
                char::from_u32(code).unwrap_or('\u{fffd}')
            }
            _ => {
                self.at -= 1;
                return self.bad("unknown escape");
            }
        })
    }

    fn hex4(&mut self) -> Result<u32, Bad> {
        let mut n = 0;
        for _ in 0..4 {
            match char::from(self.peek()).to_digit(16) {
                Some(d) => n = n * 16 + d,
                None => return self.bad("expected four hex digits"),
            }
            self.at += 1;
        }
        Ok(n)
    }

    /// A whole number without sign that surely fits; the position is left alone otherwise.
    #[inline]
    pub fn small(&mut self) -> Option<u64> {
        let rest = &self.bytes[self.at.min(self.bytes.len())..];
        let mut n: u64 = 0;
        let mut len = 0;
        while let Some(d) = rest
            .get(len)
            .map(|b| b.wrapping_sub(b'0'))
            .filter(|d| *d < 10)
        {
            n = n.wrapping_mul(10).wrapping_add(u64::from(d));
            len += 1;
        }
        let whole = len > 0 && len < 19 && !matches!(rest.get(len), Some(b'.' | b'e' | b'E'));
        whole.then(|| {
            self.at += len;
            n
        })
    }

    /// A number: integers exact, everything else a float.
    #[inline]
    pub fn number(&mut self) -> Result<Value, Bad> {
        let from = self.at;
        let negative = self.peek() == b'-';
        self.at += usize::from(negative);
        let digits = self.at;
        let mut small: u64 = 0;
        while self.peek().is_ascii_digit() {
            small = small
                .wrapping_mul(10)
                .wrapping_add(u64::from(self.peek() - b'0'));
            self.at += 1;
        }
        let count = self.at - digits;
        if count == 0 {
            return self.bad("expected a number");
        }
        if matches!(self.peek(), b'.' | b'e' | b'E') {
            return self.float(from);
        }
        if count <= 19 {
            let i = i128::from(small);
            return Ok(Value::Int(if negative { -i } else { i }));
        }
        match self.text[from..self.at].parse::<i128>() {
            Ok(i) => Ok(Value::Int(i)),
            Err(_) => self.float(from),
        }
    }

    fn float(&mut self, from: usize) -> Result<Value, Bad> {
        while matches!(self.peek(), b'.' | b'e' | b'E' | b'+' | b'-' | b'0'..=b'9') {
            self.at += 1;
        }
        match self.text[from..self.at].parse::<f64>() {
            Ok(x) => Ok(Value::Float(x)),
            Err(_) => self.bad("expected a number"),
        }
    }

    pub fn word(&mut self, word: &'static str) -> bool {
        let here = self.bytes[self.at..].starts_with(word.as_bytes());
        if here {
            self.at += word.len();
        }
        here
    }

    pub fn value(&mut self, interner: &mut Interner, depth: u32) -> Result<Value, Bad> {
        if depth > DEEPEST {
            return self.bad("nested too deeply");
        }
        self.space();
        match self.peek() {
            b'"' => Ok(Value::Str(interner.get(&self.string()?))),
            b'{' => self.map(interner, depth),
            b'[' => self.list(interner, depth),
            b'-' | b'0'..=b'9' => self.number(),
            b'n' if self.word("null") => Ok(Value::Null),
            b't' if self.word("true") => Ok(Value::Bool(true)),
            b'f' if self.word("false") => Ok(Value::Bool(false)),
            _ => self.bad("expected a value"),
        }
    }

    fn map(&mut self, interner: &mut Interner, depth: u32) -> Result<Value, Bad> {
        self.at += 1;
        let mut members: Vec<(Arc<str>, Value)> = Vec::new();
        if self.take(b'}') {
            return Ok(Value::Map(members));
        }
        loop {
            let name = interner.get(&self.string()?);
            self.expect(b':', "expected ':'")?;
            members.push((name, self.value(interner, depth + 1)?));
            if self.take(b'}') {
                return Ok(Value::Map(members));
            }
            self.expect(b',', "expected ',' or '}'")?;
        }
    }

    fn list(&mut self, interner: &mut Interner, depth: u32) -> Result<Value, Bad> {
        self.at += 1;
        let mut items = Vec::new();
        if self.take(b']') {
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.value(interner, depth + 1)?);
            if self.take(b']') {
                return Ok(Value::List(items));
            }
            self.expect(b',', "expected ',' or ']'")?;
        }
    }
}
