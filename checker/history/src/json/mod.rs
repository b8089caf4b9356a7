//! JSON as histories need it: exact 64-bit integers, no intermediate tree, fast.

mod event;
mod parse;
mod write;

pub(crate) use event::EventParser;
pub use parse::{ValueParser, parse_value};
pub use write::{write_event, write_value};
