//! A client of the witness.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use super::wire::{Ask, Told, Verb, put};
use crate::locks::{CallError, ConfError};
use crate::protocol::Item;
use crate::stores::{
    Access, Armed, BoxedStore, Change, FinalState, Store, StoreAdmin, StoreContext, StoreKind,
};
use crate::wire::tcp::{LineConn, Slot};

pub const KIND: StoreKind = StoreKind {
    name: "witness",
    about: "register and set served by the harness, fenced or not, with its own serial log",
    new,
    admin,
};

#[derive(Clone)]
struct Client {
    slot: Arc<Slot<LineConn>>,
    timeout: Duration,
    id: Arc<AtomicU64>,
}

fn client(cx: StoreContext) -> Result<Client, ConfError> {
    if cx.conf.addr.is_empty() {
        return Err(ConfError("store \"witness\" needs an \"addr\"".into()));
    }
    Ok(Client {
        slot: Arc::new(Slot::new(cx.conf.addr, cx.timeout)),
        timeout: cx.timeout,
        id: Arc::default(),
    })
}

fn new(cx: StoreContext) -> Result<BoxedStore, ConfError> {
    Ok(Box::new(client(cx)?))
}

fn admin(cx: StoreContext) -> Result<Box<dyn StoreAdmin>, ConfError> {
    Ok(Box::new(client(cx)?))
}

impl Client {
    fn ask(&self, op: Verb, key: &Arc<str>) -> Ask {
        Ask {
            id: self.id.fetch_add(1, Ordering::Relaxed),
            op,
            key: key.clone(),
            owner: None,
            fence: None,
            value: None,
            prev: None,
            element: None,
            set: None,
        }
    }

    fn under(&self, op: Verb, at: &Access) -> Ask {
        Ask {
            owner: Some(at.owner.clone()),
            fence: at.fence,
            ..self.ask(op, &at.key)
        }
    }

    async fn ready(&self, ask: &Ask) -> Result<Shot, CallError> {
        let mut bytes = Vec::with_capacity(160);
        put(ask, &mut bytes);
        let conn = self.slot.take().await?;
        Ok(Shot {
            client: self.clone(),
            conn,
            bytes,
            id: ask.id,
        })
    }

    async fn call(&self, ask: &Ask) -> Result<Told, CallError> {
        self.ready(ask).await?.exchange().await
    }
}

/// A request of which only the socket write is left.
struct Shot {
    client: Client,
    conn: LineConn,
    bytes: Vec<u8>,
    id: u64,
}

impl Shot {
    async fn exchange(mut self) -> Result<Told, CallError> {
        // A connection whose answer did not come is dropped with `self`.
        let line = self.conn.exchange(&self.bytes, self.client.timeout).await?;
        let told: Told = serde_json::from_slice(&line)
            .map_err(|e| CallError::unknown(format!("witness answered rubbish: {e}")))?;
        match told {
            Told { ok: true, id, .. } if id == self.id => {
                self.client.slot.put(self.conn);
                Ok(told)
            }
            Told { ok: true, id, .. } => Err(CallError::unknown(format!(
                "witness answered {id} instead of {}",
                self.id
            ))),
            Told { error, .. } => {
                self.client.slot.put(self.conn);
                Err(CallError::definite(
                    error.unwrap_or_else(|| "refused".into()),
                ))
            }
        }
    }
}

#[async_trait]
impl Store for Client {
    async fn read(&self, at: &Access) -> Result<Option<Item>, CallError> {
        Ok(self.call(&self.under(Verb::Read, at)).await?.value)
    }

    async fn read_set(&self, at: &Access) -> Result<Vec<Item>, CallError> {
        Ok(self
            .call(&self.under(Verb::ReadSet, at))
            .await?
            .set
            .unwrap_or_default())
    }

    async fn arm(&self, at: &Access, change: Change) -> Result<Box<dyn Armed>, CallError> {
        let ask = match change {
            Change::Write { value, prev } => Ask {
                value: Some(value),
                prev,
                ..self.under(Verb::Write, at)
            },
            Change::Add { element, set } => Ask {
                element: Some(element),
                set: Some(set),
                ..self.under(Verb::Add, at)
            },
        };
        Ok(Box::new(self.ready(&ask).await?))
    }
}

#[async_trait]
impl Armed for Shot {
    async fn fire(self: Box<Self>) -> Result<(), CallError> {
        self.exchange().await.map(|_| ())
    }
}

#[async_trait]
impl StoreAdmin for Client {
    async fn final_state(&self, key: &str) -> Result<FinalState, CallError> {
        let told = self.call(&self.ask(Verb::Final, &key.into())).await?;
        Ok(FinalState {
            value: told.value,
            set: told.set.unwrap_or_default(),
        })
    }

    async fn export_log(&self) -> Result<Option<Vec<String>>, CallError> {
        Ok(None)
    }
}
