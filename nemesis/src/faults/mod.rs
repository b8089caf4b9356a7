//! One file a fault (`cuts` belongs to `partition`).

mod cuts;
pub mod kill;
pub mod partition;
pub mod pause;
pub mod snapshot;
