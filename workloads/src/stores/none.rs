//! No store: accepts everything and remembers nothing. For measuring locks
//! alone, and what the harness itself costs.

use async_trait::async_trait;

use super::{Access, Armed, BoxedStore, Change, Store, StoreContext, StoreKind};
use crate::locks::{CallError, ConfError};
use crate::protocol::Item;

pub const KIND: StoreKind = StoreKind {
    name: "none",
    about: "accepts everything, remembers nothing",
    new,
    admin: super::no_admin,
};

struct Nothing;

fn new(_: StoreContext) -> Result<BoxedStore, ConfError> {
    Ok(Box::new(Nothing))
}

#[async_trait]
impl Store for Nothing {
    async fn read(&self, _: &Access) -> Result<Option<Item>, CallError> {
        Ok(None)
    }

    async fn read_set(&self, _: &Access) -> Result<Vec<Item>, CallError> {
        Ok(Vec::new())
    }

    async fn arm(&self, _: &Access, _: Change) -> Result<Box<dyn Armed>, CallError> {
        Ok(Box::new(Nothing))
    }
}

#[async_trait]
impl Armed for Nothing {
    async fn fire(self: Box<Self>) -> Result<(), CallError> {
        Ok(())
    }
}
