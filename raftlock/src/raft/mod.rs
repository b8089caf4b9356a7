//! Replication: openraft over our log, our transport and the lock machine.

mod aboard;
mod backend;
mod log_store;
mod network;
mod node;
mod peers;
mod refusals;
mod replica;
mod runs;
mod runtime;
mod server;
mod snapshot;
mod state_machine;
pub(crate) mod wire;

use std::sync::Arc;

pub use backend::RaftBackend;
pub use log_store::LogStore;
pub use node::{Node, NodeError, NodeSetup, transfer_all};
pub use peers::{PeerBook, PeerError};
pub use replica::{Replica, ReplicaStatus, status};
pub use state_machine::StateMachine;

use crate::group::Batch;

openraft::declare_raft_types!(
    /// Textbook Raft: at most one leader in a term, so that the term can be the epoch.
    pub Types:
        D = Arc<Batch>,
        R = (),
        NodeId = u64,
        Node = openraft::impls::EmptyNode,
        LeaderId = openraft::impls::leader_id_std::LeaderId<u64, u64>,
        AsyncRuntime = runtime::Runtime,
);

/// One group's Raft.
pub type Raft = openraft::Raft<Types, StateMachine>;
/// A position in a log.
pub type LogId = openraft::type_config::alias::LogIdOf<Types>;
/// A vote.
pub type Vote = openraft::type_config::alias::VoteOf<Types>;
/// A log entry.
pub type Entry = openraft::type_config::alias::EntryOf<Types>;
/// What a snapshot is of.
pub type SnapshotMeta = openraft::type_config::alias::SnapshotMetaOf<Types>;
/// A snapshot's content.
pub type SnapshotData = Arc<Vec<u8>>;
/// A snapshot.
pub type Snapshot = openraft::type_config::alias::SnapshotOf<Types, SnapshotData>;
