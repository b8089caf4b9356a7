//! The harness: hosts, systems, controller and command line.

pub mod cli;
pub mod doctor;
pub mod heal;
pub mod host;
pub mod images;
pub mod record;
pub mod run;
pub mod scenario;
pub mod system;
pub mod worker;
