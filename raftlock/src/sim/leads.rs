//! Who leads: at most one replica in a term of a group, and a replica that began anew does not lead on in its old term.

use std::cell::RefCell;
use std::collections::BTreeMap;

use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;

use super::record;
use crate::host;
use crate::raft::Replica;

thread_local! {
    static SEEN: RefCell<Seen> = const { RefCell::new(Seen { starts: 0, leaders: BTreeMap::new() }) };
}

struct Leader {
    node: u64,
    /// Which of all starts of replicas it was, once it said so itself.
    start: Option<u64>,
}

struct Seen {
    starts: u64,
    leaders: BTreeMap<(u32, u64), Leader>,
}

impl Seen {
    fn leads(&mut self, group: u32, term: u64, node: u64, start: Option<u64>) -> Option<String> {
        let seen = self.leaders.entry((group, term));
        let seen = seen.or_insert(Leader { node, start });
        if seen.node != node {
            let other = seen.node;
            return Some(format!(
                "group {group} has two leaders in term {term}: {other} and {node}"
            ));
        }
        let started = start.is_some() && seen.start.is_some() && start != seen.start;
        seen.start = start.or(seen.start);
        started.then(|| {
            format!("replica {node} leads group {group} in term {term} again after it began anew")
        })
    }
}

/// Forgets the run before.
pub fn reset() {
    SEEN.with_borrow_mut(|seen| {
        seen.starts = 0;
        seen.leaders.clear();
    });
}

/// Follows whom a replica that starts now takes for leaders.
pub fn follow(node: u64, replicas: &[Replica]) {
    let start = SEEN.with_borrow_mut(|seen| {
        seen.starts += 1;
        seen.starts
    });
    for (group, raft) in (0..).zip(replicas) {
        let mut metrics = raft.server_metrics();
        let task = tokio::spawn(host::scoped(async move {
            loop {
                let (term, leader, itself) = {
                    let seen = metrics.borrow_and_update();
                    let itself = seen.state == ServerState::Leader && seen.vote.committed;
                    // Not `current_leader`, which may be ahead of the vote.
                    let leader = seen.vote.committed.then_some(seen.vote.leader_id.voted_for);
                    (seen.vote.leader_id.term, leader, itself)
                };
                if let Some(leader) = leader {
                    let start = (itself && leader == node).then_some(start);
                    let broken = SEEN.with_borrow_mut(|all| all.leads(group, term, leader, start));
                    broken.into_iter().for_each(record::broken);
                }
                if metrics.changed().await.is_err() {
                    return;
                }
            }
        }));
        host::spawned(&task);
    }
}
