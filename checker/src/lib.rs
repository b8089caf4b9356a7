//! Linearizability and lock-safety checks over histories of concurrent operations.
//!
//! [`check_events`] judges a history of events by one of the built-in models;
//! [`check`] judges operations by any [`Model`].

pub mod brute;
mod check;
pub mod checks;
pub mod exit;
pub mod explain;
mod fast;
pub mod generate;
pub mod judge;
pub mod kind;
mod model;
pub mod models;
pub mod ops;
mod options;
mod pair;
mod search;
pub mod verdict;

pub use check::{check, check_events, check_history, check_records};
pub use kind::ModelKind;
pub use model::Model;
pub use ops::{NEVER, Timed};
pub use options::{CheckError, Engine, Options, Outcome, Report, Spent};

/// The README's example, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
