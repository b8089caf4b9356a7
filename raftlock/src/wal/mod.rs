//! The write-ahead log: segmented append-only files shared by all groups of a node.
//!
//! One flush is one frame with a CRC, so a torn write loses the whole flush and nothing else. A frame is written only
//! after the one before it was synced: an unreadable frame at the very end is a torn tail (never acknowledged) and is
//! cut; an unreadable frame with a readable one after it is corruption and is refused with its place.

mod dir;
mod flusher;
mod frame;
mod log;
mod spare;

#[cfg(test)]
mod tests;

pub use dir::{Dir, LogFile, RealDir, read_json};
pub use flusher::{FlushStats, Flusher, Job};
pub use frame::{Record, RecordKind};
pub use log::{Wal, WalOptions};

/// What is to be done about a directory that is of no use any more.
pub const RESTORE: &str =
    "restore all replicas from a backup, see \"A replica that lost its disk\" in docs/raftlock.md";

/// Why the log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WalError {
    /// The system refused a file operation.
    #[error("cannot {what} {name}: {source}; the replica must stop")]
    Io {
        /// The operation.
        what: &'static str,
        /// The file.
        name: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Bytes that are not what was written.
    #[error("corrupt log: {name} at offset {offset}: {what}; {}", RESTORE)]
    Corrupt {
        /// The segment.
        name: String,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// An earlier write failed; nothing more is accepted.
    #[error(
        "the log failed earlier and accepts nothing more; restart the replica after mending its disk"
    )]
    Poisoned,
}

impl WalError {
    pub(crate) fn io(what: &'static str, name: &str, source: std::io::Error) -> Self {
        WalError::Io {
            what,
            name: name.to_owned(),
            source,
        }
    }
}
