//! Stores that a lock guards: one file each, and one line in [`STORES`].
//!
//! A fenced store accepts an operation iff its fence is at least the highest
//! accepted before for that key; an accepted write, add or (unless told not)
//! read raises it. An operation without a fence cannot be checked and is
//! accepted.

mod etcd;
mod none;
mod postgres;
mod redis;
mod text;
pub mod witness;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::locks::{CallError, ConfError};
use crate::protocol::{Fence, Item, StoreConf};

/// Who touches what: the lock's key and the grant under which it is touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    pub key: Arc<str>,
    pub owner: Arc<str>,
    pub fence: Option<Fence>,
}

/// A change of a key's register or set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Replaces the register; `prev` is what the writer read.
    Write { value: Item, prev: Option<Item> },
    /// Replaces the whole set by `set`, which is what the writer read and `element`.
    Add { element: Item, set: Vec<Item> },
}

/// One client's way to a store. Calls come one after another.
///
/// A refused fence is the definite error `stale-fence`.
#[async_trait]
pub trait Store: Send + Sync {
    /// The register's value.
    async fn read(&self, at: &Access) -> Result<Option<Item>, CallError>;

    /// The set's elements.
    async fn read_set(&self, at: &Access) -> Result<Vec<Item>, CallError>;

    /// Makes a change ready to be sent: connection open, request encoded.
    async fn arm(&self, at: &Access, change: Change) -> Result<Box<dyn Armed>, CallError>;
}

/// A change of which only the sending is left.
#[async_trait]
pub trait Armed: Send {
    async fn fire(self: Box<Self>) -> Result<(), CallError>;
}

/// What a store client is made from.
#[derive(Clone, Debug)]
pub struct StoreContext {
    pub conf: StoreConf,
    pub worker: u32,
    pub client: u32,
    pub timeout: Duration,
}

/// What the controller asks of a store, outside of any grant.
#[async_trait]
pub trait StoreAdmin: Send + Sync {
    /// What a key holds at the end; not logged, no fence looked at.
    async fn final_state(&self, key: &str) -> Result<FinalState, CallError>;

    /// The store's serial log as lines of `store.jsonl`, without newlines.
    /// `None`: the store writes that file by itself, or has no order to tell.
    async fn export_log(&self) -> Result<Option<Vec<String>>, CallError>;
}

/// Contents of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinalState {
    pub value: Option<Item>,
    pub set: Vec<Item>,
}

/// For stores that keep nothing.
fn no_admin(_: StoreContext) -> Result<Box<dyn StoreAdmin>, ConfError> {
    struct Nothing;
    #[async_trait]
    impl StoreAdmin for Nothing {
        async fn final_state(&self, _: &str) -> Result<FinalState, CallError> {
            Ok(FinalState::default())
        }
        async fn export_log(&self) -> Result<Option<Vec<String>>, CallError> {
            Ok(None)
        }
    }
    Ok(Box::new(Nothing))
}

/// A boxed store, as the registry makes it.
pub type BoxedStore = Box<dyn Store>;

/// One kind of store. Connections are made on first use.
pub struct StoreKind {
    pub name: &'static str,
    /// One line for `fencepost list`.
    pub about: &'static str,
    pub new: fn(StoreContext) -> Result<BoxedStore, ConfError>,
    pub admin: fn(StoreContext) -> Result<Box<dyn StoreAdmin>, ConfError>,
}

/// Every store by name.
pub const STORES: &[StoreKind] = &[
    witness::KIND,
    redis::KIND,
    postgres::KIND,
    etcd::KIND,
    none::KIND,
];

/// The store of this name.
///
/// # Errors
/// An unknown name; the message lists the known ones.
pub fn find(name: &str) -> Result<&'static StoreKind, ConfError> {
    STORES.iter().find(|k| k.name == name).ok_or_else(|| {
        let known: Vec<&str> = STORES.iter().map(|k| k.name).collect();
        ConfError(format!("no store \"{name}\"; known: {}", known.join(", ")))
    })
}
