//! Messages between replicas: length-prefixed postcard frames on one TCP connection per direction for all groups.

use std::io;

use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::runs::{Flushed, Run};
use super::{SnapshotMeta, Types, Vote};

/// Version of this protocol.
pub const VERSION: u32 = 3;
/// Largest frame before the peer is known.
pub const HELLO_LIMIT: usize = 4 << 10;
/// Largest frame between known peers.
pub const FRAME_LIMIT: usize = 64 << 20;
/// Bytes of a snapshot in one frame: small enough that heartbeats pass between them.
pub const PART: usize = 256 << 10;

/// The first frame of a connection, and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`].
    pub version: u32,
    /// The cluster's name and shared secret, hashed.
    pub cluster: u64,
    /// Sender.
    pub from: u64,
    /// Receiver that is meant.
    pub to: u64,
    /// Drawn when the sender's directory was made.
    pub incarnation: u64,
    /// How far the sender's log is on disk.
    pub run: Run,
    /// What the sender knows of others, the receiver among them.
    pub known: Vec<Flushed>,
    /// Where the sender serves clients.
    pub client_url: String,
    /// Set by the one that answers, if it refuses.
    pub refused: Option<String>,
}

/// A request of one group.
#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    /// AppendEntries.
    Append(AppendEntriesRequest<Types>),
    /// RequestVote.
    Vote(VoteRequest<Types>),
    /// The vote before the vote, which raises no term.
    PreVote(VoteRequest<Types>),
    /// The leader wants another to lead.
    Transfer(TransferLeaderRequest<Types>),
    /// What the sender knows of how far logs are on disk, its own too.
    Known(Vec<Flushed>),
    /// A part of a snapshot's bytes.
    SnapshotPart { transfer: u64, bytes: Vec<u8> },
    /// All parts were sent.
    SnapshotEnd {
        transfer: u64,
        vote: Vote,
        meta: SnapshotMeta,
        crc: u32,
    },
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
pub enum Tell {
    /// To `Append`.
    Append(AppendEntriesResponse<Types>),
    /// To `Vote` and `PreVote`.
    Vote(VoteResponse<Types>),
    /// To `Transfer`.
    Transfer(TransferLeaderResponse<Types>),
    /// To `SnapshotPart` and `Known`.
    Taken,
    /// To `SnapshotEnd`.
    Snapshot(SnapshotResponse<Types>),
    /// The receiver's Raft has stopped or refused.
    Failed(String),
}

/// A request with its number and group.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// Number within the connection.
    pub id: u64,
    /// The group.
    pub group: u32,
    /// The request.
    pub ask: Ask,
}

/// An answer with its number, and how far the answerer's log is on disk.
#[derive(Debug, Serialize, Deserialize)]
pub struct Response {
    /// Number of the request.
    pub id: u64,
    /// The answerer's last durable flush: a later connection that knows less was rolled back.
    pub sequence: u64,
    /// The answer.
    pub tell: Tell,
}

/// One message as a frame.
pub fn frame<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let mut bytes = postcard::to_extend(message, vec![0; 4]).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len() - 4).map_err(io::Error::other)?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}

/// Reads one message of at most `limit` bytes.
pub async fn read<T: for<'de> Deserialize<'de>>(
    from: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
    limit: usize,
) -> io::Result<T> {
    let length = from.read_u32_le().await? as usize;
    if length > limit {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a frame of {length} bytes; the limit is {limit}"),
        ));
    }
    buffer.resize(length, 0);
    from.read_exact(buffer).await?;
    let message = postcard::from_bytes(buffer)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    if buffer.capacity() > 1 << 20 {
        *buffer = Vec::new();
    }
    Ok(message)
}
