//! Connections shared by lock clients and stores.

pub mod redis;
pub mod tcp;
