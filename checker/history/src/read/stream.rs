//! One event after another, in constant memory.

use std::io::{self, Cursor};
use std::path::Path;

use super::edn::{EdnEvents, Next};
use super::lines::Lines;
use super::order::{Orderer, Record};
use super::source::{self, Format, Source};
use super::text::TextParser;
use crate::error::{ReadError, TORN, Warning, Warnings};
use crate::json::EventParser;
use crate::raw::RawEvent;

const HEAD: usize = 4096;

enum Events {
    Jsonl(Lines, EventParser),
    Text(Lines, TextParser),
    Edn(EdnEvents),
}

/// Streams the events of a history of any supported format, gzip and zstd included.
///
/// Yields events in the order of the file. Where that is not the order of `index` the
/// stream ends in [`ReadError::OutOfOrder`]; [`super::read_path`] sorts.
pub struct Reader {
    path: String,
    events: Events,
    /// Events so far.
    seen: u64,
    order: Orderer,
    warnings: Warnings,
    previous: Option<u64>,
    sorting: bool,
    ended: bool,
}

impl Reader {
    /// # Errors
    /// When the file cannot be opened or its compression is broken.
    pub fn open(path: &Path) -> Result<Reader, ReadError> {
        let name = path.display().to_string();
        Self::over(source::open(path), name)
    }

    /// # Errors
    /// When the bytes start like a compressed file and are none.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Reader, ReadError> {
        let source = source::decompressed(Box::new(Cursor::new(bytes)));
        Self::over(source, "input".to_owned())
    }

    fn over(source: io::Result<Source>, path: String) -> Result<Reader, ReadError> {
        let events = source
            .and_then(|s| source::peek(s, HEAD))
            .map_err(Stop::Io)
            .and_then(|(head, s)| {
                Ok(match source::format_of(&head) {
                    Format::Jsonl => Events::Jsonl(Lines::new(s), EventParser::default()),
                    Format::Text => Events::Text(Lines::new(s), TextParser::default()),
                    Format::Edn => Events::Edn(EdnEvents::new(s)?),
                })
            })
            .map_err(|stop| stop.at(&path))?;
        Ok(Reader {
            path,
            events,
            seen: 0,
            order: Orderer::default(),
            warnings: Warnings::default(),
            previous: None,
            sorting: false,
            ended: false,
        })
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
        let raw = match &mut self.events {
            Events::Jsonl(lines, json) => jsonl(lines, json, &mut self.warnings),
            Events::Text(lines, text) => text_log(lines, text, &mut self.warnings, self.seen == 0),
            Events::Edn(edn) => match edn.next()? {
                Next::Event(raw, line) => Ok(Some((raw, line))),
                Next::End => Ok(None),
                Next::Torn(line) => {
                    self.warnings.add(line, TORN);
                    Ok(None)
                }
            },
        };
        match raw {
            Ok(Some((raw, line))) => {
                self.seen += 1;
                self.order.place(raw, line, &mut self.warnings).map(Some)
            }
            Ok(None) => Ok(None),
            Err(stop) => Err(stop.at(&self.path)),
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

pub(super) enum Stop {
    Io(io::Error),
    Read(ReadError),
}

impl Stop {
    fn at(self, path: &str) -> ReadError {
        match self {
            Stop::Read(e) => e,
            Stop::Io(source) => ReadError::Io {
                path: path.to_owned(),
                source,
            },
        }
    }
}

type Raw = Result<Option<(RawEvent, u64)>, Stop>;

fn jsonl(lines: &mut Lines, json: &mut EventParser, warnings: &mut Warnings) -> Raw {
    loop {
        let (raw, terminated) = match lines.next().map_err(Stop::Io)? {
            None => {
                if lines.cut {
                    warnings.add(lines.number, TORN);
                }
                return Ok(None);
            }
            Some(l) if l.bytes.iter().all(u8::is_ascii_whitespace) => continue,
            Some(l) => (json.parse(l.bytes), l.terminated),
        };
        let line = lines.number;
        match raw {
            Ok(raw) => return Ok(Some((raw, line))),
            Err(_) if !terminated => {
                warnings.add(line, TORN);
                return Ok(None);
            }
            Err(what) => return Err(Stop::Read(ReadError::malformed(line, what))),
        }
    }
}

fn text_log(lines: &mut Lines, text: &mut TextParser, warnings: &mut Warnings, first: bool) -> Raw {
    let mut skipped = false;
    loop {
        match lines.next().map_err(Stop::Io)? {
            Some(l) => match text.parse(l.bytes) {
                Some(raw) => return Ok(Some((raw, lines.number))),
                None => skipped |= !l.bytes.is_empty(),
            },
            None if first && skipped => {
                let what = "no event here; expected JSON lines, EDN or a Jepsen log";
                return Err(Stop::Read(ReadError::malformed(1, what)));
            }
            None => {
                if lines.cut {
                    warnings.add(lines.number, TORN);
                }
                return Ok(None);
            }
        }
    }
}
