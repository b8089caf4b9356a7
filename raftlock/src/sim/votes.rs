//! Votes, as they leave a replica: none goes to two candidates of a group in one term, and a replica that began anew votes
//! in no term below the last in which it voted.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::net::SimStream;
use super::process::{self, Process};
use super::record;
use crate::raft::Vote;
use crate::raft::wire::{Ask, Request, Response, Tell};

/// What is said of every broken vote.
pub const BROKEN: &str = "a vote was forgotten";

thread_local! {
    static CAST: RefCell<Cast> = const { RefCell::new(Cast(BTreeMap::new())) };
}

/// What each replica voted in each group.
struct Cast(BTreeMap<(u16, u32), Voter>);

#[derive(Default)]
struct Voter {
    process: Option<Arc<Process>>,
    /// Highest term in which an earlier process of the replica voted.
    before: u64,
    /// For whom, by term.
    votes: BTreeMap<u64, u64>,
}

impl Cast {
    fn vote(
        &mut self,
        process: &Arc<Process>,
        group: u32,
        term: u64,
        candidate: u64,
    ) -> Option<String> {
        let id = process.machine;
        let voter = self.0.entry((id, group)).or_default();
        let goes_on = |known: &Arc<Process>| Arc::ptr_eq(known, process);
        if !voter.process.as_ref().is_some_and(goes_on) {
            voter.process = Some(Arc::clone(process));
            voter.before = voter.votes.last_key_value().map_or(0, |(term, _)| *term);
        }
        let first = *voter.votes.entry(term).or_insert(candidate);
        if first != candidate {
            return Some(format!(
                "{BROKEN}: replica {id} voted for {first} and for {candidate} in term {term} of group {group}"
            ));
        }
        let before = voter.before;
        (term < before).then(|| {
            format!("{BROKEN}: replica {id} votes in term {term} of group {group}; before it began anew it voted in {before}")
        })
    }
}

/// Forgets the run before.
pub fn reset() {
    CAST.with_borrow_mut(|cast| cast.0.clear());
}

/// One direction of a connection between replicas, as far as it has passed.
#[derive(Default)]
struct Passed {
    bytes: Vec<u8>,
    greeted: bool,
}

impl Passed {
    /// The messages that `more` makes whole.
    fn messages<T: DeserializeOwned>(&mut self, more: &[u8]) -> Vec<T> {
        self.bytes.extend_from_slice(more);
        let (mut messages, mut at) = (Vec::new(), 0);
        while let Some((length, rest)) = self.bytes[at..].split_first_chunk()
            && let Some(frame) = rest.get(..u32::from_le_bytes(*length) as usize)
        {
            at += 4 + frame.len();
            // The first one is the greeting.
            if std::mem::replace(&mut self.greeted, true)
                && let Ok(message) = postcard::from_bytes(frame)
            {
                messages.push(message);
            }
        }
        self.bytes.drain(..at);
        messages
    }
}

/// A replica's end of a connection to another: notes the votes that it sends.
pub struct Watched {
    stream: SimStream,
    process: Option<Arc<Process>>,
    dialled: bool,
    sent: Passed,
    read: Passed,
    /// Votes asked for, and in which group.
    asked: BTreeMap<u64, u32>,
}

impl Watched {
    /// Watches this end; `dialled` is set at the one that asks.
    pub fn new(stream: SimStream, dialled: bool) -> Self {
        Watched {
            stream,
            process: process::owner(),
            dialled,
            sent: Passed::default(),
            read: Passed::default(),
            asked: BTreeMap::new(),
        }
    }

    fn sent(&mut self, bytes: &[u8]) {
        if self.dialled {
            // Who asks for votes has given itself its own.
            for Request { group, ask, .. } in self.sent.messages(bytes) {
                if let Ask::Vote(asked) = ask {
                    self.cast(group, asked.vote);
                }
            }
            return;
        }
        for Response { id, tell, .. } in self.sent.messages(bytes) {
            if let Some(group) = self.asked.remove(&id)
                && let Tell::Vote(told) = tell
                && told.vote_granted
            {
                self.cast(group, told.vote);
            }
        }
    }

    fn read(&mut self, bytes: &[u8]) {
        if self.dialled {
            return;
        }
        for Request { id, group, ask } in self.read.messages(bytes) {
            if matches!(ask, Ask::Vote(_)) {
                self.asked.insert(id, group);
            }
        }
    }

    fn cast(&self, group: u32, vote: Vote) {
        let Some(process) = &self.process else { return };
        let (term, candidate) = (vote.leader_id.term, vote.leader_id.voted_for);
        let broken = CAST.with_borrow_mut(|cast| cast.vote(process, group, term, candidate));
        broken.into_iter().for_each(record::broken);
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.read(&buffer.filled()[before..]);
        polled
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = polled {
            self.sent(&bytes[..count]);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::super::process::Clock;
    use super::*;

    #[test]
    fn a_vote_is_given_once_in_a_term_and_never_in_an_earlier_one_after_a_restart() {
        let clock = Clock {
            rate: 1.0,
            wall_ms: 0,
            behind: Duration::ZERO,
        };
        let start = || Process::new(1, Instant::now(), clock);
        let (first, second) = (start(), start());
        let mut cast = Cast(BTreeMap::new());
        assert_eq!(cast.vote(&first, 0, 5, 2), None);
        assert_eq!(cast.vote(&first, 0, 4, 3), None, "on its way for longer");
        assert_eq!(cast.vote(&first, 1, 5, 3), None, "another group");
        assert!(cast.vote(&first, 0, 5, 3).is_some());
        assert_eq!(cast.vote(&second, 0, 5, 2), None, "told again");
        assert!(cast.vote(&second, 0, 5, 1).is_some());
        assert!(cast.vote(&second, 0, 3, 2).is_some());
        assert_eq!(cast.vote(&second, 0, 6, 2), None);
    }
}
