//! Answers and where they go.

use tokio::sync::{mpsc, oneshot};

use crate::machine::{Reply, Token};

/// What a request got.
#[derive(Debug, Clone)]
pub enum Answer {
    /// The machine's reply, committed.
    Reply(Reply),
    /// The session lives, prolonged from the receipt of the request.
    Alive { ttl_ms: u32, epoch: u64 },
    /// Leadership confirmed.
    Confirmed,
    /// A queued acquire was granted.
    Woken { token: Token },
    /// A queued acquire left the queue: its session ended (`expired`) or its deadline passed.
    WaitEnded { expired: bool },
    /// The session is unknown or ending.
    NoSession,
    /// This node does not lead the group; nothing was done.
    NotLeader { leader: Option<u64> },
    /// Too many requests wait here; nothing was done.
    Overloaded,
    /// The node is stopping; nothing was done.
    Stopped,
    /// The outcome is not known.
    Unknown(&'static str),
}

/// Where an answer goes.
pub enum ReplyTo {
    /// One caller.
    One(oneshot::Sender<Answer>),
    /// A stream, with the id that its client gave the request.
    Many(mpsc::UnboundedSender<(u64, Answer)>, u64),
    /// Nobody.
    Nobody,
}

impl ReplyTo {
    /// Delivers; a caller that went away is no error.
    pub fn send(self, answer: Answer) {
        match self {
            ReplyTo::One(tx) => drop(tx.send(answer)),
            ReplyTo::Many(tx, id) => drop(tx.send((id, answer))),
            ReplyTo::Nobody => {}
        }
    }
}
