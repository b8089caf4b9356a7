//! The built-in sequential specifications, and how their operations are written in events.

pub mod lock;
pub mod locks;
pub mod register;
pub(crate) mod values;
