//! The lock-safety checks, clause by clause, and over random histories.
#![allow(clippy::unwrap_used)]

mod fuzz;
mod holders;
mod kleppmann;
mod live;
mod liveness;
mod others;
mod script;
mod servers;
mod simulation;
