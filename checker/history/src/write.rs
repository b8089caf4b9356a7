//! Writing `history.jsonl`.

use std::io::{self, Write};

use crate::Event;
use crate::json::write_event;

/// Writes events as JSON lines; hand it batches and [`flush`](Writer::flush) between them.
pub struct Writer<W: Write> {
    out: W,
    line: Vec<u8>,
}

impl<W: Write> Writer<W> {
    pub fn new(out: W) -> Self {
        Writer {
            out,
            line: Vec::with_capacity(512),
        }
    }

    /// # Errors
    /// Those of the underlying writer.
    pub fn write(&mut self, event: &Event) -> io::Result<()> {
        self.line.clear();
        write_event(&mut self.line, event);
        self.out.write_all(&self.line)
    }

    /// Writes a batch with one call to the underlying writer, so that a batch is
    /// handed over whole.
    ///
    /// # Errors
    /// Those of the underlying writer.
    pub fn write_all(&mut self, events: &[Event]) -> io::Result<()> {
        self.line.clear();
        for e in events {
            write_event(&mut self.line, e);
        }
        self.out.write_all(&self.line)
    }

    /// # Errors
    /// Those of the underlying writer.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    pub fn into_inner(self) -> W {
        self.out
    }
}
