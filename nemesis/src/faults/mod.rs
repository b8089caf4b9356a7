//! One file a fault (`cuts` belongs to `partition`, `shape` and `shown` to `packets`).

pub mod clock;
pub mod cuts;
pub mod disk;
pub mod failover;
pub mod kill;
pub mod packets;
pub mod partition;
pub mod pause;
pub mod shape;
mod shown;
pub mod snapshot;
