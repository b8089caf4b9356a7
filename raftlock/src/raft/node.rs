//! All groups of one node: recovery, start, housekeeping, stop.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::InitializeError;
use openraft::{Config, SnapshotPolicy};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::network::Links;
use super::snapshot::SnapshotFile;
use super::{LogStore, PeerBook, Raft, RaftBackend, Replica, ReplicaStatus, StateMachine};
use super::{replica, server, state_machine};
use crate::backup::Backup;
use crate::chance;
use crate::group::{Applier, Driver, Group, Shared};
use crate::host::{self, sleep, timeout};
use crate::transport::Transport;
use crate::wal::{Dir, Flusher, Record};

/// Why a node cannot run.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Its files are not usable.
    #[error("cannot recover group {group}: {source}")]
    Recover {
        /// The group.
        group: u32,
        /// What is wrong.
        source: io::Error,
    },
    /// The peer port is not to be had.
    #[error("cannot listen for peers on {addr}: {source}; choose another peer address")]
    Listen {
        /// The address.
        addr: String,
        /// What the system said.
        source: io::Error,
    },
    /// Raft refused the setup.
    #[error("cannot start group {group}: {why}")]
    Raft {
        /// The group.
        group: u32,
        /// What it said.
        why: String,
    },
}

/// What a node is made of.
pub struct NodeSetup {
    /// Peer addresses of all replicas, this one too; empty for a lone node.
    pub peers: BTreeMap<u64, String>,
    /// Groups.
    pub groups: u32,
    /// Heartbeat interval; elections start after five to ten of them.
    pub heartbeat: Duration,
    /// Bytes of log after which a group takes a snapshot.
    pub snapshot_bytes: usize,
    /// Entries kept when a snapshot covers them, for followers that are a little behind.
    pub keep_entries: u64,
    /// The node's directory.
    pub dir: Arc<dyn Dir>,
    /// Its log.
    pub flusher: Flusher,
    /// What was found in the log.
    pub records: Vec<Record>,
    /// What its groups begin with, if it was restored from a backup.
    pub beginning: Option<Backup>,
    /// Its memory of its peers.
    pub book: Arc<PeerBook>,
    /// How to reach them.
    pub transport: Arc<dyn Transport>,
}

/// A node's running groups.
pub struct Node {
    /// The ways into the groups.
    pub groups: Vec<Group>,
    replicas: Arc<Vec<Replica>>,
    id: u64,
    tasks: JoinSet<()>,
}

impl Node {
    /// Recovers all groups and starts them. `failed` is told when a group can not go on.
    pub async fn start(
        setup: NodeSetup,
        failed: watch::Sender<Option<String>>,
    ) -> Result<Self, NodeError> {
        let peers = setup.peers.clone();
        let node = Self::begin(setup, failed).await?;
        node.initialize(&peers).await?;
        Ok(node)
    }

    async fn begin(
        setup: NodeSetup,
        failed: watch::Sender<Option<String>>,
    ) -> Result<Self, NodeError> {
        let mut tasks = JoinSet::new();
        let id = setup.book.id;
        let links = Links::start(&setup.peers, &setup.book, &setup.transport, &mut tasks);
        let config =
            Arc::new(raft_config(&setup).map_err(|why| NodeError::Raft { group: 0, why })?);
        let boot = chance::random();
        let lone = setup.peers.len() < 2;
        let (mut groups, mut replicas) = (Vec::new(), Vec::new());
        for group in 0..setup.groups.max(1) {
            let recovering = |source| NodeError::Recover { group, source };
            let file = SnapshotFile::new(Arc::clone(&setup.dir), group);
            let (machine, meta) = state_machine::recover(&file, group, setup.beginning.as_ref())
                .map_err(recovering)?;
            let log = LogStore::recover(
                group,
                setup.flusher.clone(),
                &setup.records,
                file.covered(),
                meta.last_log_id,
            )
            .map_err(recovering)?;
            let shared = Shared::new(machine);
            let (applier, events) = Applier::new(Arc::clone(&shared), id, boot);
            let machine = StateMachine::new(Arc::clone(&shared), applier, file, meta);
            let raft = Raft::new(
                id,
                Arc::clone(&config),
                links.of_group(group),
                log.clone(),
                machine,
            )
            .await
            .map_err(|error| NodeError::Raft {
                group,
                why: error.to_string(),
            })?;
            let replica = Replica::new(raft.clone(), id, lone, setup.heartbeat);
            let backend = Arc::new(RaftBackend::new(replica.clone(), &mut tasks));
            let (handle, inbox) = Group::new(group, Arc::clone(&shared));
            tasks.spawn(host::scoped(
                Driver::new(backend, shared, group, id, boot).run(inbox, events),
            ));
            tasks.spawn(host::scoped(keep_house(
                group,
                raft,
                log,
                setup.snapshot_bytes,
                failed.clone(),
            )));
            groups.push(handle);
            replicas.push(replica);
        }
        let replicas = Arc::new(replicas);
        if let Some(addr) = setup.peers.get(&id) {
            let listening = setup.transport.listen(addr).await;
            let listener = listening.map_err(|source| NodeError::Listen {
                addr: addr.clone(),
                source,
            })?;
            tasks.spawn(host::scoped(server::accept(
                listener,
                Arc::clone(&setup.book),
                Arc::clone(&replicas),
            )));
        }
        Ok(Node {
            groups,
            replicas,
            id,
            tasks,
        })
    }

    /// The first start of a cluster: every replica writes the same first membership. Refused where there is something
    /// already: at every later start, and where a peer that began earlier has had this replica's vote; that peer's log
    /// then brings the membership. Asked first, the answer could change before the deed.
    async fn initialize(&self, peers: &BTreeMap<u64, String>) -> Result<(), NodeError> {
        let lone = peers.len() < 2;
        let members: BTreeSet<u64> = if lone {
            [self.id].into()
        } else {
            peers.keys().copied().collect()
        };
        for (group, raft) in (0..).zip(self.replicas.iter()) {
            match raft.initialize(members.clone()).await {
                Ok(()) => {}
                Err(error) if matches!(error.api_error(), Some(InitializeError::NotAllowed(_))) => {
                    if lone {
                        let _ = raft.trigger().elect(false).await;
                    }
                }
                Err(error) => {
                    let why = error.to_string();
                    return Err(NodeError::Raft { group, why });
                }
            }
        }
        Ok(())
    }

    /// Waits until every group has a leader, at most so long; false if not.
    pub async fn wait_ready(&self, limit: Duration) -> bool {
        let all = async {
            while self
                .replicas
                .iter()
                .any(|replica| replica.leader().is_none())
            {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(limit, all).await.is_ok()
    }

    /// The groups' states.
    pub fn status(&self) -> Vec<ReplicaStatus> {
        replica::status(&self.replicas)
    }

    /// A handle for status pages that outlives borrows of the node.
    pub fn replicas(&self) -> Arc<Vec<Replica>> {
        Arc::clone(&self.replicas)
    }

    /// Hands leaderships to others, then stops.
    pub async fn stop(mut self) {
        transfer_all(&self.replicas, self.id).await;
        for raft in self.replicas.iter() {
            let _ = timeout(Duration::from_secs(2), raft.shutdown()).await;
        }
        self.tasks.abort_all();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Hands every leadership of node `id` to the voter that has most of the log; waits a second at most.
pub async fn transfer_all(replicas: &[Replica], id: u64) {
    let mut moving = Vec::new();
    for raft in replicas.iter().filter(|raft| raft.is_leader()) {
        let target = {
            let metrics = raft.metrics();
            let seen = metrics.borrow_watched();
            let followers = seen
                .replication
                .iter()
                .flatten()
                .filter(|(peer, _)| **peer != id);
            followers
                .max_by_key(|(_, matched)| matched.map(|log| log.index))
                .map(|(peer, _)| *peer)
        };
        if let Some(target) = target
            && raft.trigger().transfer_leader(target).await.is_ok()
        {
            moving.push(raft);
        }
    }
    let moved = async {
        while moving.iter().any(|raft| raft.is_leader()) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let _ = timeout(Duration::from_secs(1), moved).await;
}

fn raft_config(setup: &NodeSetup) -> Result<Config, String> {
    let beat = setup.heartbeat.as_millis() as u64;
    let config = Config {
        heartbeat_interval: beat,
        election_timeout_min: beat * 3,
        election_timeout_max: beat * 5,
        max_payload_entries: 32,
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: setup.keep_entries,
        purge_batch_size: (setup.keep_entries / 3).max(1),
        install_snapshot_timeout: 5_000,
        enable_pre_vote: Some(true),
        // A restarted leader must win an election: a new term is a new epoch, and every session starts a full TTL.
        enable_leader_restore: Some(false),
        ..Config::default()
    };
    config.validate().map_err(|error| error.to_string())
}

/// Takes snapshots by the size of the log and tells when the group has stopped, also by a panic.
async fn keep_house(
    group: u32,
    raft: Raft,
    log: LogStore,
    snapshot_bytes: usize,
    failed: watch::Sender<Option<String>>,
) {
    let mut metrics = raft.server_metrics();
    let mut over = std::pin::pin!(async move { while metrics.changed().await.is_ok() {} });
    loop {
        let ended = timeout(Duration::from_millis(250), &mut over).await.is_ok();
        let running = raft.metrics().borrow_watched().running_state.clone();
        if ended || running.is_err() {
            let why = running.map_or_else(
                |error| error.to_string(),
                |()| "it ended without a reason".to_owned(),
            );
            failed.send_if_modified(|told| {
                let first = told.is_none();
                told.get_or_insert_with(|| format!("group {group} stopped: {why}"));
                first
            });
            return;
        }
        if log.bytes() > snapshot_bytes {
            let _ = raft.trigger().snapshot().await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use openraft::raft::VoteRequest;

    use super::super::Vote;
    use super::*;
    use crate::transport::Tcp;
    use crate::wal::{RealDir, Wal, WalOptions};

    /// Replica 2 of three, whose peers are not there.
    fn setup(path: &std::path::Path) -> NodeSetup {
        let dir: Arc<dyn Dir> = Arc::new(RealDir::open(path).unwrap());
        let (wal, records) = Wal::open(Arc::clone(&dir), WalOptions::default()).unwrap();
        let (flusher, _) = Flusher::start(wal, |error| panic!("{error}")).unwrap();
        let book = PeerBook::open(
            2,
            1..=3,
            "test",
            String::new(),
            Arc::clone(&dir),
            flusher.stats(),
            watch::channel(None).0,
        );
        NodeSetup {
            peers: (1..=3).map(|id| (id, "127.0.0.1:0".to_owned())).collect(),
            groups: 1,
            heartbeat: Duration::from_millis(100),
            snapshot_bytes: 1 << 20,
            keep_entries: 100,
            dir,
            flusher,
            records,
            beginning: None,
            book: Arc::new(book.unwrap()),
            transport: Arc::new(Tcp),
        }
    }

    #[tokio::test]
    async fn a_vote_asked_for_before_the_first_membership_ends_nothing() {
        let path = tempfile::tempdir().unwrap();
        let setup = setup(path.path());
        let peers = setup.peers.clone();
        let node = Node::begin(setup, watch::channel(None).0).await.unwrap();
        let vote = Vote::new(1, 1);
        let told = node.replicas[0].vote(VoteRequest::new(vote, None)).await;
        assert!(told.unwrap().vote_granted);
        node.initialize(&peers).await.unwrap();
        let seen = &node.status()[0];
        assert_eq!((seen.term, seen.last_log), (1, None), "it keeps its vote");
        node.stop().await;
    }
}
