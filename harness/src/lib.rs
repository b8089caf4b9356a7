//! The harness: hosts, systems, controller and command line.

pub mod host;
pub mod system;
