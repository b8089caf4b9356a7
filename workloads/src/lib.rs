//! Lock clients, fenced stores, the worker that carries them, and the load
//! generator that drives them. `docs/worker-protocol.md` is the contract.

pub mod locks;
pub mod protocol;
pub mod stores;
#[cfg(test)]
mod testing;
mod wire;
pub mod worker;
