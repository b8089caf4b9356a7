//! Lock clients, fenced stores, the worker that carries them, and the load
//! generator that drives them. `docs/worker-protocol.md` is the contract.

pub mod locks;
pub mod protocol;
pub mod stores;
pub mod worker;
