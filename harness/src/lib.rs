//! The harness: hosts, systems, controller and command line.

pub mod host;
pub mod images;
pub mod system;
