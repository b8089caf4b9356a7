//! Raftlock: a lock service with sessions, FIFO waiters and fencing tokens.
//!
//! [`machine`] is pure; everything around it moves entries into it and its outputs to clients.

pub mod args;
pub mod backup;
pub mod buckets;
mod chance;
pub mod config;
mod flaw;
pub mod group;
mod host;
pub mod http;
pub mod machine;
pub mod meter;
pub mod raft;
mod serve;
#[cfg(test)]
mod sim;
pub mod transport;
pub mod wal;

pub use args::ServeArgs;
pub use config::Config;
pub use serve::{Handle, ServeError, run_until_signal, serve};
