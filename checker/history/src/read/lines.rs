//! Lines of a byte stream, through one buffer.

use std::io::{self, Read};

const CHUNK: usize = 256 * 1024;
/// A longer line is no history event.
const LONGEST: usize = 64 * 1024 * 1024;

pub(crate) struct Lines {
    source: Box<dyn Read + Send>,
    buf: Vec<u8>,
    /// Unread bytes are `buf[start..end]`.
    start: usize,
    end: usize,
    done: bool,
    pub number: u64,
    /// The compressed stream ended in its middle.
    pub cut: bool,
}

pub(crate) struct Line<'a> {
    pub bytes: &'a [u8],
    /// False for a last line without its newline: it may be torn.
    pub terminated: bool,
}

impl Lines {
    pub fn new(source: Box<dyn Read + Send>) -> Self {
        Lines {
            source,
            buf: vec![0; CHUNK],
            start: 0,
            end: 0,
            done: false,
            number: 0,
            cut: false,
        }
    }

    /// The next line without its newline, counted in `number`.
    pub fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut searched = self.start;
        loop {
            if let Some(n) = memchr::memchr(b'\n', &self.buf[searched..self.end]) {
                let (from, to) = (self.start, searched + n);
                self.start = to + 1;
                self.number += 1;
                return Ok(Some(Line {
                    bytes: &self.buf[from..to],
                    terminated: true,
                }));
            }
            if self.done {
                if self.start == self.end {
                    return Ok(None);
                }
                let (from, to) = (self.start, self.end);
                self.start = self.end;
                self.number += 1;
                return Ok(Some(Line {
                    bytes: &self.buf[from..to],
                    terminated: false,
                }));
            }
            let kept = self.end - self.start;
            self.fill()?;
            searched = self.start + kept;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        self.buf.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.buf.len() {
            if self.buf.len() >= LONGEST {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("line {} is longer than 64 MiB", self.number + 1),
                ));
            }
            self.buf.resize(self.buf.len() * 2, 0);
        }
        match self.source.read(&mut self.buf[self.end..]) {
            Ok(0) => self.done = true,
            Ok(n) => self.end += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                self.done = true;
                self.cut = true;
            }
            Err(e) => return Err(e),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn split(text: Vec<u8>) -> Vec<(Vec<u8>, bool)> {
        let mut lines = Lines::new(Box::new(io::Cursor::new(text)));
        let mut out = Vec::new();
        while let Some(l) = lines.next().unwrap() {
            out.push((l.bytes.to_vec(), l.terminated));
        }
        out
    }

    #[test]
    fn splits_across_chunks() {
        let long = vec![b'x'; CHUNK * 3 + 7];
        let text = [b"a\n\n".as_slice(), &long, b"\nend"].concat();
        assert_eq!(
            split(text),
            vec![
                (b"a".to_vec(), true),
                (vec![], true),
                (long, true),
                (b"end".to_vec(), false)
            ]
        );
        assert!(split(vec![]).is_empty());
    }
}
