//! Workers as the controller sees them: two pipes and the protocol on them.

mod error;
mod link;
mod session;
#[cfg(test)]
mod session_tests;

pub use error::WorkerError;
pub use link::{Link, Reading};
pub use session::{Asked, Heard, Session};
