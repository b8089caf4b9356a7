//! A bound on the connections of clients: without one, whoever opens enough of them takes the file descriptors that the log
//! needs.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Open files left to the log, snapshots and peers.
const RESERVED: u64 = 512;

/// Raises the process's limit of open files as far as it may, and says how many connections of clients it leaves room for.
pub fn room(wanted: u32) -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid rlimit for the length of the calls.
    let known = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && {
            let raised = libc::rlimit {
                rlim_cur: limit.rlim_max,
                ..limit
            };
            if libc::setrlimit(libc::RLIMIT_NOFILE, &raised) == 0 {
                limit = raised;
            }
            true
        }
    };
    let wanted = wanted.max(1) as usize;
    if !known {
        return wanted;
    }
    let left = limit.rlim_cur - RESERVED.min(limit.rlim_cur / 2);
    wanted
        .min(usize::try_from(left).unwrap_or(usize::MAX))
        .max(1)
}

/// Accepts at most so many connections at once; more are closed at once.
pub struct Bounded<L> {
    inner: L,
    places: Arc<Semaphore>,
}

impl<L> Bounded<L> {
    /// Around a listener.
    pub fn new(inner: L, count: usize) -> Self {
        let places = Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        Bounded { inner, places }
    }
}

impl<L: axum::serve::Listener> axum::serve::Listener for Bounded<L> {
    type Io = Counted<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (io, addr) = self.inner.accept().await;
            match Arc::clone(&self.places).try_acquire_owned() {
                Ok(place) => return (Counted { io, _place: place }, addr),
                Err(_) => tracing::debug!("too many connections; closed one more"),
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.inner.local_addr()
    }
}

/// A connection that takes one of the places while it is open.
pub struct Counted<T> {
    io: T,
    _place: OwnedSemaphorePermit,
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
