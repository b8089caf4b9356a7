//! The built-in sequential specifications, and how their operations are written in events.

pub mod collections;
pub mod kv;
pub mod lock;
pub mod locks;
pub mod multi;
pub mod register;
pub(crate) mod values;
