//! Standard input by lines, standard output in batches.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::Notify;

use crate::protocol::{Reply, WorkerEvent};

/// Bytes asked for at a time: many requests in one read.
const CHUNK: usize = 64 * 1024;

/// Incoming lines.
pub struct Input {
    from: Pin<Box<dyn AsyncRead + Send>>,
    buf: Vec<u8>,
    /// Start of the next line in `buf`.
    at: usize,
}

impl Input {
    /// Standard input: read without threads where it is a pipe.
    pub fn stdin() -> io::Result<Input> {
        let fd = io::stdin().as_fd().try_clone_to_owned()?;
        let from: Pin<Box<dyn AsyncRead + Send>> = match pipe::Receiver::from_owned_fd(fd) {
            Ok(pipe) => Box::pin(pipe),
            Err(_) => Box::pin(tokio::io::stdin()),
        };
        Ok(Input::from(from))
    }

    fn from(from: Pin<Box<dyn AsyncRead + Send>>) -> Input {
        Input {
            from,
            buf: Vec::with_capacity(CHUNK),
            at: 0,
        }
    }

    /// Lines from anything.
    #[cfg(test)]
    pub fn over(from: impl AsyncRead + Send + 'static) -> Input {
        Input::from(Box::pin(from))
    }

    /// Waits for more bytes; 0 at the end.
    pub async fn fill(&mut self) -> io::Result<usize> {
        self.buf.drain(..self.at);
        self.at = 0;
        self.buf.reserve(CHUNK);
        self.from.read_buf(&mut self.buf).await
    }

    /// The next complete line that was read, without its newline. Empty lines
    /// are passed over.
    pub fn next_line(&mut self) -> Option<&[u8]> {
        loop {
            let rest = &self.buf[self.at..];
            let len = rest.iter().position(|b| *b == b'\n')?;
            let start = self.at;
            self.at += len + 1;
            if len > 0 {
                return Some(&self.buf[start..start + len]);
            }
        }
    }

    /// Bytes of a line that has not ended yet.
    pub fn pending(&self) -> usize {
        self.buf.len() - self.at
    }
}

struct Shared {
    buf: Mutex<Vec<u8>>,
    filled: Notify,
    emptied: Notify,
}

/// Outgoing lines, in the order of the calls; a task writes them in batches.
#[derive(Clone)]
pub struct Out(Arc<Shared>);

impl Out {
    /// Standard output: written without threads where it is a pipe.
    pub fn stdout() -> Out {
        let pipe = io::stdout()
            .as_fd()
            .try_clone_to_owned()
            .and_then(pipe::Sender::from_owned_fd);
        match pipe {
            Ok(pipe) => Out::to(pipe),
            Err(_) => Out::to(tokio::io::stdout()),
        }
    }

    /// Lines go to `sink`; when it fails the process has no reader left and ends.
    pub fn to(sink: impl AsyncWrite + Send + Unpin + 'static) -> Out {
        let shared = Arc::new(Shared {
            buf: Mutex::new(Vec::new()),
            filled: Notify::new(),
            emptied: Notify::new(),
        });
        tokio::spawn(pump(shared.clone(), sink));
        Out(shared)
    }

    pub fn reply(&self, reply: &Reply) {
        self.push(|buf| reply.write_line(buf));
    }

    pub fn event(&self, event: &WorkerEvent) {
        self.push(|buf| event.write_line(buf));
    }

    fn push(&self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.0.buf.lock().unwrap_or_else(PoisonError::into_inner));
        self.0.filled.notify_one();
    }

    /// Waits until everything said so far was written.
    pub async fn flush(&self) {
        loop {
            let emptied = self.0.emptied.notified();
            if self
                .0
                .buf
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .is_empty()
            {
                return;
            }
            emptied.await;
        }
    }
}

async fn pump(shared: Arc<Shared>, mut sink: impl AsyncWrite + Unpin) {
    let mut batch = Vec::new();
    loop {
        shared.filled.notified().await;
        loop {
            batch.clear();
            batch.extend_from_slice(&shared.buf.lock().unwrap_or_else(PoisonError::into_inner));
            if batch.is_empty() {
                break;
            }
            if sink.write_all(&batch).await.is_err() || sink.flush().await.is_err() {
                std::process::exit(0);
            }
            // Removed only now, so that an empty buffer means that all is written.
            shared
                .buf
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .drain(..batch.len());
            shared.emptied.notify_waiters();
        }
    }
}
