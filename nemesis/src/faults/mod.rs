//! One file a fault.

pub mod kill;
pub mod pause;
pub mod snapshot;
