//! The two pipes of a worker, never blocking: a stopped worker must not stop the controller.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fencepost_workloads::protocol::MAX_LINE;
use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// Bytes taken from a pipe at once; also a Linux pipe's default capacity.
const CHUNK: usize = 64 << 10;

/// Requests out, lines in, with a buffer for each.
pub struct Link {
    stdin: Option<File>,
    stdout: File,
    inbox: Vec<u8>,
    /// Start of the first line that was not handed out yet.
    from: usize,
    /// Start and end of the line handed out last.
    last: (usize, usize),
    outbox: Vec<u8>,
}

/// What a read came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The pipe is empty for now.
    Drained,
    /// The worker closed its output: it is exiting or dead.
    Closed,
}

impl Link {
    /// Takes both pipes over and makes them non-blocking.
    ///
    /// # Errors
    /// Those of `fcntl`.
    pub fn new(stdin: OwnedFd, stdout: OwnedFd) -> io::Result<Self> {
        for fd in [stdin.as_fd(), stdout.as_fd()] {
            let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
            fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        }
        Ok(Link {
            stdin: Some(stdin.into()),
            stdout: stdout.into(),
            inbox: Vec::new(),
            from: 0,
            last: (0, 0),
            outbox: Vec::new(),
        })
    }

    pub fn output(&self) -> BorrowedFd<'_> {
        self.stdout.as_fd()
    }

    /// The worker's input, when bytes wait for room in it.
    pub fn blocked_input(&self) -> Option<BorrowedFd<'_>> {
        if self.outbox.is_empty() {
            None
        } else {
            self.stdin.as_ref().map(AsFd::as_fd)
        }
    }

    /// Where requests are appended until the next [`send`](Self::send).
    pub fn outbox(&mut self) -> &mut Vec<u8> {
        &mut self.outbox
    }

    /// Writes as much as the pipe takes; the rest stays for later. A worker that has
    /// closed its input is noticed when its output closes.
    pub fn send(&mut self) {
        let Some(stdin) = &mut self.stdin else {
            self.outbox.clear();
            return;
        };
        let mut sent = 0;
        while sent < self.outbox.len() {
            match stdin.write(&self.outbox[sent..]) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.outbox.clear();
                    self.stdin = None;
                    return;
                }
            }
        }
        self.outbox.drain(..sent);
    }

    /// Closes the worker's input: a worker exits at end of input.
    pub fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// Takes what the pipe holds now.
    ///
    /// # Errors
    /// Those of `read`, or a line that is longer than the protocol allows.
    pub fn fill(&mut self) -> io::Result<Reading> {
        self.inbox.drain(..self.from);
        self.from = 0;
        self.last = (0, 0);
        loop {
            let had = self.inbox.len();
            if had > MAX_LINE + CHUNK {
                return Ok(Reading::Drained);
            }
            self.inbox.resize(had + CHUNK, 0);
            let result = self.stdout.read(&mut self.inbox[had..]);
            self.inbox.truncate(had + *result.as_ref().unwrap_or(&0));
            match result {
                Ok(0) => return Ok(Reading::Closed),
                // A short read emptied the pipe: no second call to learn that.
                Ok(n) if n < CHUNK => return Ok(Reading::Drained),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Reading::Drained),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// The next whole line, without its newline.
    pub fn next_line(&mut self) -> Option<&[u8]> {
        let rest = &self.inbox[self.from..];
        let end = rest.iter().position(|b| *b == b'\n')?;
        self.last = (self.from, self.from + end);
        self.from += end + 1;
        Some(self.last_line())
    }

    /// The line handed out last, until the next [`fill`](Self::fill).
    pub fn last_line(&self) -> &[u8] {
        &self.inbox[self.last.0..self.last.1]
    }

    /// The part of a line that has come without its end.
    pub fn unfinished(&self) -> &[u8] {
        &self.inbox[self.from..]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn pipes() -> (Link, io::PipeReader, io::PipeWriter) {
        let (their_in, our_out) = io::pipe().unwrap();
        let (our_in, their_out) = io::pipe().unwrap();
        (
            Link::new(our_out.into(), our_in.into()).unwrap(),
            their_in,
            their_out,
        )
    }

    #[test]
    fn lines_come_whole_across_reads() {
        let (mut link, _in, mut out) = pipes();
        out.write_all(b"one\ntw").unwrap();
        assert_eq!(link.fill().unwrap(), Reading::Drained);
        assert_eq!(link.next_line(), Some(&b"one"[..]));
        assert_eq!(link.next_line(), None);
        assert_eq!(link.unfinished(), b"tw");
        out.write_all(b"o\n").unwrap();
        drop(out);
        link.fill().unwrap();
        assert_eq!(link.next_line(), Some(&b"two"[..]));
        assert_eq!(link.fill().unwrap(), Reading::Closed);
    }

    #[test]
    fn a_worker_that_reads_nothing_does_not_block() {
        let (mut link, mut their_in, _out) = pipes();
        link.outbox().extend(std::iter::repeat_n(b'x', 300_000));
        link.send();
        assert!(link.blocked_input().is_some());
        let mut got = 0;
        while link.blocked_input().is_some() {
            got += their_in.read(&mut [0; 65536]).unwrap();
            link.send();
        }
        link.hang_up();
        while let Ok(n @ 1..) = their_in.read(&mut [0; 65536]) {
            got += n;
        }
        assert_eq!(got, 300_000);
    }
}
