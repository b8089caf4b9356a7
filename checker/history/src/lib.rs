//! Histories of concurrent operations on locks and registers: the event type,
//! and readers and writers of the formats in which they are kept.

pub mod event;
pub mod names;
pub mod value;

pub use event::{Event, EventType, Process};
pub use value::Value;
