//! One event after another, in constant memory.

use std::io::Cursor;
use std::path::Path;

use super::lines::Lines;
use super::order::{Orderer, Record};
use super::source::{self, Source};
use crate::error::{ReadError, TORN, Warning, Warnings};
use crate::json::EventParser;

/// Streams the events of a history of any supported format, gzip and zstd included.
///
/// Yields events in the order of the file. Where that is not the order of `index` the
/// stream ends in [`ReadError::OutOfOrder`]; [`super::read_path`] sorts.
pub struct Reader {
    path: String,
    lines: Lines,
    json: EventParser,
    order: Orderer,
    warnings: Warnings,
    previous: Option<u64>,
    sorting: bool,
    ended: bool,
}

impl Reader {
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path) -> Result<Reader, ReadError> {
        let name = path.display().to_string();
        source::open(path)
            .map(|s| Reader::over(s, name.clone()))
            .map_err(|source| ReadError::Io { path: name, source })
    }

    /// # Errors
    /// When the bytes start like a compressed file and are none.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Reader, ReadError> {
        let name = "input".to_owned();
        source::decompressed(Box::new(Cursor::new(bytes)))
            .map(|s| Reader::over(s, name.clone()))
            .map_err(|source| ReadError::Io { path: name, source })
    }

    fn over(source: Source, path: String) -> Reader {
        Reader {
            path,
            lines: Lines::new(source),
            json: EventParser::default(),
            order: Orderer::default(),
            warnings: Warnings::default(),
            previous: None,
            sorting: false,
            ended: false,
        }
    }

    /// Lets indexes come in any order: the caller sorts.
    pub(crate) fn unsorted(mut self) -> Reader {
        self.sorting = true;
        self
    }

    /// What was odd so far.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings.0
    }

    /// Whether precedence is by index (else by time).
    pub fn indexed(&self) -> bool {
        self.order.indexed()
    }

    fn step(&mut self) -> Result<Option<Record>, ReadError> {
        loop {
            let next = self.lines.next();
            let (raw, terminated) = match next {
                Err(source) => {
                    return Err(ReadError::Io {
                        path: self.path.clone(),
                        source,
                    });
                }
                Ok(None) => {
                    if self.lines.cut {
                        self.warnings.add(self.lines.number, TORN);
                    }
                    return Ok(None);
                }
                Ok(Some(l)) if l.bytes.iter().all(u8::is_ascii_whitespace) => continue,
                Ok(Some(l)) => (self.json.parse(l.bytes), l.terminated),
            };
            let line = self.lines.number;
            match raw {
                Ok(raw) => return self.order.place(raw, line, &mut self.warnings).map(Some),
                Err(_) if !terminated => {
                    self.warnings.add(line, TORN);
                    return Ok(None);
                }
                Err(what) => return Err(ReadError::malformed(line, what)),
            }
        }
    }

    fn in_order(&mut self, r: &Record) -> Result<(), ReadError> {
        let index = r.event.index;
        match self.previous.replace(index) {
            Some(previous) if index == previous => Err(ReadError::malformed(
                r.line,
                format!("index {index} is there twice"),
            )),
            Some(previous) if index < previous => Err(ReadError::OutOfOrder {
                line: r.line,
                index,
                previous,
            }),
            _ => Ok(()),
        }
    }
}

impl Iterator for Reader {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let step = self.step().and_then(|r| match r {
            Some(r) if !self.sorting => self.in_order(&r).map(|()| Some(r)),
            other => Ok(other),
        });
        match step {
            Ok(Some(r)) => Some(Ok(r)),
            Ok(None) => {
                self.ended = true;
                None
            }
            Err(e) => {
                self.ended = true;
                Some(Err(e))
            }
        }
    }
}
