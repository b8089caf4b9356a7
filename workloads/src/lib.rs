//! Lock clients, fenced stores, and the worker that carries them;
//! `docs/worker-protocol.md` is the contract. The open-loop load that drives
//! them is the controller's (crate `fencepost`, `run/core`).

pub mod locks;
pub mod protocol;
pub mod stores;
#[cfg(test)]
mod testing;
mod wire;
pub mod worker;
