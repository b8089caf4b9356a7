//! The lock-safety checks, clause by clause, and over random histories.
#![allow(clippy::unwrap_used)]

mod holders;
mod kleppmann;
mod liveness;
mod others;
mod script;
mod simulation;
