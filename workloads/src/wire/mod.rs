//! Connections shared by lock clients and stores.

pub mod etcd;
pub mod postgres;
pub mod redis;
pub mod tcp;
