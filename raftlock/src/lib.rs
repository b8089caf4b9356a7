//! Raftlock: a lock service with sessions, FIFO waiters and fencing tokens.
//!
//! [`machine`] is pure; everything around it moves entries into it and its outputs to clients.

pub mod machine;
pub mod wal;
