//! One group's Raft on this node, and whether the leader that it names still leads.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openraft::RaftMetrics;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::rt::Instant as _;
use tokio::time::Instant;

use super::{Raft, Types, wire::Ask};
use crate::host;

/// Heartbeats within which a leader must have been heard, or is not taken for one. Followers that hear nothing ask for votes after
/// eight to ten; two more are for their ticks and the election itself. With less, a stall that deposes nobody would make a node
/// say that it is not ready; with more, clients would be sent to a dead leader while nobody can be elected.
const SILENCE: u32 = 12;

type Metrics = RaftMetrics<Types>;

/// When a leader was last heard: its term and the moment, in ns since `begun`.
struct Heard {
    begun: Instant,
    term: AtomicU64,
    at: AtomicU64,
}

/// One group's Raft on this node. Cheap to clone.
#[derive(Clone)]
pub struct Replica {
    raft: Raft,
    id: u64,
    lone: bool,
    silence: Duration,
    heard: Arc<Heard>,
}

/// One group's state for status pages.
#[derive(Debug, Clone, serde::Serialize)]
pub struct ReplicaStatus {
    /// The group.
    pub group: u32,
    /// `Leader`, `Follower`, …
    pub state: String,
    /// Current term.
    pub term: u64,
    /// The leader, if it was heard of lately.
    pub leader: Option<u64>,
    /// Last log index.
    pub last_log: Option<u64>,
    /// Last applied index.
    pub applied: Option<u64>,
    /// Index that the last snapshot covers.
    pub snapshot: Option<u64>,
}

impl Deref for Replica {
    type Target = Raft;

    fn deref(&self) -> &Raft {
        &self.raft
    }
}

impl Replica {
    /// The Raft of node `id`, which is `lone` if there is no other.
    pub fn new(raft: Raft, id: u64, lone: bool, heartbeat: Duration) -> Self {
        let heard = Heard {
            begun: host::now(),
            term: AtomicU64::new(0),
            at: AtomicU64::new(0),
        };
        Replica {
            raft,
            id,
            lone,
            silence: heartbeat * SILENCE,
            heard: Arc::new(heard),
        }
    }

    /// Notes that a leader was heard. Its term is compared when the leader is asked for, so that a deposed one changes nothing.
    pub fn hear(&self, ask: &Ask) {
        let vote = match ask {
            Ask::Append(append) => &append.vote,
            Ask::SnapshotEnd { vote, .. } => vote,
            _ => return,
        };
        let (term, heard) = (vote.leader_id.term, &self.heard);
        if term < heard.term.load(Ordering::Acquire) {
            return;
        }
        let since = host::now().saturating_duration_since(heard.begun);
        heard.at.store(since.as_nanos() as u64, Ordering::Release);
        heard.term.store(term, Ordering::Release);
    }

    /// The leader as far as this node can know. Raft itself names the last one until there is another: one that is dead, and one
    /// that its followers do not answer, which may be this node.
    pub fn leader(&self) -> Option<u64> {
        self.named(&self.raft.metrics().borrow_watched())
    }

    fn named(&self, seen: &Metrics) -> Option<u64> {
        let leader = seen.current_leader?;
        let silent = if leader == self.id {
            let acked = seen.last_quorum_acked.as_ref();
            acked.map_or(Duration::MAX, |acked| acked.elapsed())
        } else if self.heard.term.load(Ordering::Acquire) == seen.current_term {
            let at = Duration::from_nanos(self.heard.at.load(Ordering::Acquire));
            host::now().saturating_duration_since(self.heard.begun + at)
        } else {
            Duration::MAX
        };
        (self.lone || silent < self.silence).then_some(leader)
    }

    /// Another node that leads.
    pub fn leader_elsewhere(&self) -> Option<u64> {
        self.leader().filter(|leader| *leader != self.id)
    }

    fn status(&self, group: u32) -> ReplicaStatus {
        let metrics = self.raft.metrics();
        let seen = metrics.borrow_watched();
        ReplicaStatus {
            group,
            state: format!("{:?}", seen.state),
            term: seen.current_term,
            leader: self.named(&seen),
            last_log: seen.last_log_index,
            applied: seen.last_applied.map(|id| id.index),
            snapshot: seen.snapshot.map(|id| id.index),
        }
    }
}

/// The states of these groups.
pub fn status(replicas: &[Replica]) -> Vec<ReplicaStatus> {
    let all = (0..).zip(replicas);
    all.map(|(group, replica)| replica.status(group)).collect()
}
