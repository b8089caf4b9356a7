//! The harness: hosts, systems, controller and command line.
