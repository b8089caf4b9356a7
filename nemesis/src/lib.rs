//! Faults for processes and network namespaces, with receipts.
//!
//! The controller resolves a scenario's `[[faults]]` ([`schedule::Plan`]) with a pure
//! [`schedule::Scheduler`], hands its actions to a [`Nemesis`], and records the
//! [`Report`] of each in the history. A fault knows processes ([`Proc`]) and
//! capabilities ([`env`](mod@env)), never a lock service or a host.
//!
//! Adding a fault is one file in `faults/` and one line in [`registry`].

pub mod env;
pub mod fault;
pub mod faults;
pub mod net;
pub mod process;
pub mod receipt;
pub mod registry;
pub mod runner;
pub mod schedule;
pub mod target;
#[cfg(test)]
mod testing;
pub mod vdso;

pub use env::Env;
pub use fault::{Fault, Fut, Handle, Installed, Order};
pub use process::{Members, Proc, ProcId};
pub use receipt::{Kind, Reason, Receipt, Status};
pub use runner::{Nemesis, Report};
pub use target::{Target, Targets};
