//! Histories of concurrent operations on locks and registers: the event type,
//! and readers and writers of the formats in which they are kept.

mod edn;
pub mod error;
pub mod event;
mod intern;
pub mod json;
pub mod names;
pub mod pairs;
mod raw;
pub mod read;
pub mod value;
pub mod write;

pub use error::{ReadError, Warning};
pub use event::{Event, EventType, Process};
pub use read::{History, Reader, Record, read_bytes, read_path};
pub use value::Value;
pub use write::Writer;

/// The README's example, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
