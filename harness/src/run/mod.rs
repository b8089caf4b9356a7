//! One run, from a scenario to a verdict.

pub mod core;
mod events;
