//! Waiting for pipes: one thread for all workers, so that an answer costs no hand-over.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use crate::worker::Session;

/// Ends the core's wait from another thread.
#[derive(Clone, Debug)]
pub struct Waker {
    raised: Arc<AtomicBool>,
    pipe: Arc<UnixStream>,
}

impl Waker {
    pub fn wake(&self) {
        if !self.raised.swap(true, Ordering::AcqRel) {
            // A full pipe wakes as well.
            let _ = (&*self.pipe).write(&[1]);
        }
    }
}

/// The end that the core waits on.
pub struct Wakes {
    raised: Arc<AtomicBool>,
    pipe: UnixStream,
}

/// # Errors
/// When no socket pair can be made.
pub fn waker() -> io::Result<(Waker, Wakes)> {
    let (theirs, ours) = UnixStream::pair()?;
    theirs.set_nonblocking(true)?;
    ours.set_nonblocking(true)?;
    let raised = Arc::new(AtomicBool::new(false));
    Ok((
        Waker {
            raised: raised.clone(),
            pipe: Arc::new(theirs),
        },
        Wakes { raised, pipe: ours },
    ))
}

impl Wakes {
    fn take(&mut self) {
        while matches!(self.pipe.read(&mut [0; 16]), Ok(1..)) {}
        self.raised.store(false, Ordering::Release);
    }

    /// Waits until a worker has said something, has room for what is staged, or a waker was used,
    /// and at most `limit`. Returns the places in `sessions` of those with something to read.
    pub fn wait(&mut self, sessions: &[Option<Session>], limit: Duration) -> Vec<usize> {
        let mut places = Vec::with_capacity(sessions.len());
        let mut fds = vec![PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN)];
        for (at, session) in sessions.iter().enumerate() {
            let Some(s) = session.as_ref().filter(|s| !s.is_closed()) else {
                continue;
            };
            fds.push(PollFd::new(s.link().output(), PollFlags::POLLIN));
            places.push(Some(at));
            if let Some(fd) = s.link().blocked_input() {
                fds.push(PollFd::new(fd, PollFlags::POLLOUT));
                places.push(None);
            }
        }
        let limit = TimeSpec::from_duration(limit);
        if ppoll(&mut fds, Some(limit), None).unwrap_or(0) == 0 {
            return Vec::new();
        }
        let happened = |fd: &PollFd| fd.any().unwrap_or(true);
        let woken = happened(&fds[0]);
        let ready = fds[1..]
            .iter()
            .zip(&places)
            .filter(|(fd, _)| happened(fd))
            .filter_map(|(_, at)| *at)
            .collect();
        if woken {
            self.take();
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_wake_ends_the_wait_once() {
        let (waker, mut wakes) = waker().unwrap();
        waker.wake();
        waker.wake();
        let began = Instant::now();
        wakes.wait(&[], Duration::from_secs(5));
        assert!(began.elapsed() < Duration::from_secs(1));
        wakes.wait(&[], Duration::from_millis(20));
        assert!(began.elapsed() >= Duration::from_millis(20));
    }
}
