#![allow(clippy::unwrap_used)]
use super::*;
use crate::testing::{redis, store_context, trial};

#[tokio::test]
async fn it_keeps_the_rules_of_every_store() {
    let Some(server) = redis() else { return };
    let make = |fenced| store_context("redis", &server.addr, fenced);
    trial::fenced(&*new(make(true)).unwrap(), &*admin(make(true)).unwrap()).await;
    trial::unfenced(&*new(make(false)).unwrap(), &*admin(make(false)).unwrap()).await;
}
