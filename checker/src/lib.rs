//! Linearizability and lock-safety checks.

pub mod verdict;
