//! Store in etcd: every operation is one transaction that compares the highest
//! fence, applies, and writes its own line of the log. Fences are kept as 20
//! digits, so that etcd's comparison of bytes compares numbers; the log's
//! serial order is that of its keys' create revisions.
//!
//! `addr` may list several servers, separated by commas. Params:
//! `raise_on_read` (default true), `guarded` (default false: a write is
//! accepted iff the lock's key still has the create revision that its owner
//! names, for locks of etcd).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::{Value as Json, json};
use tonic::transport::Channel;

use super::{
    Access, Armed, BoxedStore, Change, FinalState, Store, StoreAdmin, StoreContext, StoreKind,
};
use crate::locks::{CallError, ConfError, param};
use crate::protocol::{Fence, Item};
use crate::wire::etcd::{EtcdLink, created_at, etcdserverpb as pb, op, put};

pub const KIND: StoreKind = StoreKind {
    name: "etcd",
    about: "etcd: a transaction that compares the fence, or the lock's own key (guarded)",
    new,
    admin,
};

const ROOT: &str = "fencepost/store";

/// Log lines that are fetched at a time.
const PAGE: i64 = 2_000;

struct Inner {
    link: EtcdLink,
    fenced: bool,
    raise_on_read: bool,
    guarded: bool,
    /// Keys whose highest fence is known to exist.
    ready: Mutex<Vec<Arc<str>>>,
}

#[derive(Clone)]
struct EtcdStore(Arc<Inner>);

fn open(cx: StoreContext) -> Result<EtcdStore, ConfError> {
    let p = &cx.conf.params;
    let addrs: Vec<&str> = cx.conf.addr.split(',').filter(|a| !a.is_empty()).collect();
    Ok(EtcdStore(Arc::new(Inner {
        link: EtcdLink::new(&addrs, (cx.worker + cx.client) as usize, cx.timeout)?,
        fenced: cx.conf.fenced,
        raise_on_read: param(p, "raise_on_read", true)?,
        guarded: param(p, "guarded", false)?,
        ready: Mutex::default(),
    })))
}

fn new(cx: StoreContext) -> Result<BoxedStore, ConfError> {
    Ok(Box::new(open(cx)?))
}

fn admin(cx: StoreContext) -> Result<Box<dyn StoreAdmin>, ConfError> {
    Ok(Box::new(open(cx)?))
}

fn slot(key: &str, part: &str) -> String {
    format!("{ROOT}/slot/{key}/{part}")
}

fn digits(fence: Fence) -> String {
    format!("{:020}", fence.0)
}

fn text<T: serde::Serialize>(v: &T) -> Vec<u8> {
    serde_json::to_vec(v).expect("invariant: items encode")
}

fn range(key: String) -> pb::RequestOp {
    let request = pb::RangeRequest {
        key: key.into(),
        ..Default::default()
    };
    op(pb::request_op::Request::RequestRange(request))
}

/// The value that a transaction's first answer, a range, found.
fn found(answer: &pb::TxnResponse) -> Option<&[u8]> {
    match answer.responses.first()?.response.as_ref()? {
        pb::response_op::Response::ResponseRange(r) => r.kvs.first().map(|kv| kv.value.as_slice()),
        _ => None,
    }
}

impl Inner {
    /// Makes sure that the key has a highest fence to compare with.
    async fn prepare(&self, key: &Arc<str>) -> Result<(), CallError> {
        let known = |ready: &Mutex<Vec<Arc<str>>>| {
            ready
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .contains(key)
        };
        if known(&self.ready) {
            return Ok(());
        }
        let highest = slot(key, "highest");
        let txn = pb::TxnRequest {
            compare: vec![created_at(&highest, 0)],
            success: vec![put(highest, digits(Fence(0)))],
            failure: vec![],
        };
        // Whether it got through or not, nothing of the operation itself was sent.
        self.link
            .txn(txn)
            .await
            .map_err(|e| CallError::definite(e.to_string()))?;
        self.ready
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(key.clone());
        Ok(())
    }

    fn compare(&self, at: &Access, is_read: bool) -> Vec<pb::Compare> {
        if is_read && !self.raise_on_read {
            return vec![];
        }
        if self.guarded {
            let guard = at
                .owner
                .rsplit_once('#')
                .and_then(|(k, r)| Some((k, r.parse().ok()?)));
            return match guard {
                Some((key, revision)) if !is_read => vec![created_at(key, revision)],
                _ => vec![],
            };
        }
        match at.fence.filter(|_| self.fenced) {
            None => vec![],
            // "highest <= fence": less than the shortest text above it.
            Some(fence) => vec![pb::Compare {
                result: pb::compare::CompareResult::Less as i32,
                target: pb::compare::CompareTarget::Value as i32,
                key: slot(&at.key, "highest").into(),
                target_union: Some(pb::compare::TargetUnion::Value(
                    (digits(fence) + "\0").into_bytes(),
                )),
            }],
        }
    }

    /// The transaction of one operation; `apply` is what it does where accepted.
    fn txn(&self, word: &str, at: &Access, apply: pb::RequestOp, more: Json) -> pb::TxnRequest {
        let is_read = word == "read";
        let mut line = json!({"op": word, "key": at.key, "fence": at.fence, "owner": at.owner});
        if let (Some(line), Json::Object(more)) = (line.as_object_mut(), more) {
            line.extend(more);
        }
        let log = format!("{ROOT}/log/{:032x}", rand::random::<u128>());
        let with = |accepted: bool| {
            let mut line = line.clone();
            line["accepted"] = accepted.into();
            put(log.clone(), text(&line))
        };
        let mut success = vec![apply, with(true)];
        let raises = self.fenced && !self.guarded && (!is_read || self.raise_on_read);
        if let Some(fence) = at.fence.filter(|_| raises) {
            success.push(put(slot(&at.key, "highest"), digits(fence)));
        }
        pb::TxnRequest {
            compare: self.compare(at, is_read),
            success,
            failure: vec![with(false)],
        }
    }

    async fn fetch(&self, at: &Access, part: &str) -> Result<Option<Vec<u8>>, CallError> {
        self.prepare(&at.key).await?;
        let txn = self.txn(
            "read",
            at,
            range(slot(&at.key, part)),
            json!({"part": part}),
        );
        let answer = self.link.txn(txn).await?;
        if answer.succeeded {
            Ok(found(&answer).map(<[u8]>::to_vec))
        } else {
            Err(CallError::definite("stale-fence"))
        }
    }

    async fn get(&self, key: String) -> Result<Option<Vec<u8>>, CallError> {
        let request = pb::RangeRequest {
            key: key.into(),
            ..Default::default()
        };
        Ok(self
            .link
            .range(request)
            .await?
            .kvs
            .into_iter()
            .next()
            .map(|kv| kv.value))
    }
}

fn parse<T: serde::de::DeserializeOwned>(
    contents: Option<Vec<u8>>,
) -> Result<Option<T>, CallError> {
    contents
        .map(|c| serde_json::from_slice(&c))
        .transpose()
        .map_err(|e| CallError::definite(format!("the store holds rubbish: {e}")))
}

#[async_trait]
impl Store for EtcdStore {
    async fn read(&self, at: &Access) -> Result<Option<Item>, CallError> {
        parse(self.0.fetch(at, "value").await?)
    }

    async fn read_set(&self, at: &Access) -> Result<Vec<Item>, CallError> {
        Ok(parse(self.0.fetch(at, "set").await?)?.unwrap_or_default())
    }

    async fn arm(&self, at: &Access, change: Change) -> Result<Box<dyn Armed>, CallError> {
        self.0.prepare(&at.key).await?;
        let txn = match change {
            Change::Write { value, prev } => {
                let apply = put(slot(&at.key, "value"), text(&value));
                self.0
                    .txn("write", at, apply, json!({"value": value, "prev": prev}))
            }
            Change::Add { element, set } => {
                let apply = put(slot(&at.key, "set"), text(&set));
                self.0.txn("add", at, apply, json!({"element": element}))
            }
        };
        let channel = self.0.link.channel().await?;
        Ok(Box::new(Shot {
            inner: self.0.clone(),
            channel,
            txn,
        }))
    }
}

struct Shot {
    inner: Arc<Inner>,
    channel: Channel,
    txn: pb::TxnRequest,
}

#[async_trait]
impl Armed for Shot {
    async fn fire(self: Box<Self>) -> Result<(), CallError> {
        let Shot {
            inner,
            channel,
            txn,
        } = *self;
        match inner.link.txn_on(channel, txn).await?.succeeded {
            true => Ok(()),
            false => Err(CallError::definite("stale-fence")),
        }
    }
}

/// Gives log lines, in serial order, what only their order tells.
#[derive(Default)]
struct Replay {
    seq: u64,
    slots: HashMap<String, (Json, Option<u64>)>,
}

impl Replay {
    fn line(&mut self, raw: &[u8], revision: i64) -> Result<String, CallError> {
        let mut line: Json = serde_json::from_slice(raw)
            .map_err(|e| CallError::definite(format!("the log holds rubbish: {e}")))?;
        self.seq += 1;
        let key = line["key"].as_str().unwrap_or_default().to_owned();
        let (value, highest) = self.slots.entry(key).or_insert((Json::Null, None));
        if line["accepted"] == true {
            *highest = (*highest).max(line["fence"].as_u64());
            if line["op"] == "write" {
                value.clone_from(&line["value"]);
            }
        } else {
            line["reason"] = "stale-fence".into();
        }
        if line["op"] == "read" && line["part"] == "value" {
            line["value"] = value.clone();
        }
        line["seq"] = self.seq.into();
        line["time"] = revision.into();
        line["highest"] = json!(highest);
        if let Some(line) = line.as_object_mut() {
            line.remove("part");
        }
        Ok(line.to_string())
    }
}

#[async_trait]
impl StoreAdmin for EtcdStore {
    async fn final_state(&self, key: &str) -> Result<FinalState, CallError> {
        Ok(FinalState {
            value: parse(self.0.get(slot(key, "value")).await?)?,
            set: parse(self.0.get(slot(key, "set")).await?)?.unwrap_or_default(),
        })
    }

    /// `time` is the revision: etcd tells no time.
    async fn export_log(&self) -> Result<Option<Vec<String>>, CallError> {
        let (mut lines, mut replay, mut from) = (Vec::new(), Replay::default(), 0);
        loop {
            let request = pb::RangeRequest {
                key: format!("{ROOT}/log/").into(),
                range_end: format!("{ROOT}/log0").into(),
                limit: PAGE,
                sort_order: pb::range_request::SortOrder::Ascend as i32,
                sort_target: pb::range_request::SortTarget::Create as i32,
                min_create_revision: from,
            };
            let page = self.0.link.range(request).await?.kvs;
            let Some(last) = page.last() else {
                return Ok(Some(lines));
            };
            from = last.create_revision + 1;
            for kv in &page {
                lines.push(replay.line(&kv.value, kv.create_revision)?);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::{etcd, lock, store_context, trial, want};

    #[tokio::test]
    async fn it_keeps_the_rules_of_every_store() {
        let Some(server) = etcd() else { return };
        let make = |fenced| store_context("etcd", &server.addr, fenced);
        trial::fenced(&*new(make(true)).unwrap(), &*admin(make(true)).unwrap()).await;
        trial::unfenced(&*new(make(false)).unwrap(), &*admin(make(false)).unwrap()).await;
    }

    #[tokio::test]
    async fn a_guarded_write_needs_the_lock_to_be_still_there() {
        let Some(server) = etcd() else { return };
        let mut cx = store_context("etcd", &server.addr, true);
        cx.conf.params = crate::testing::params(json!({"guarded": true}));
        let (store, locks) = (new(cx).unwrap(), lock("etcd", &[&server.addr], 0));
        let held = locks.acquire(&want("L0", 2_000, 0)).await.unwrap();
        let at = Access {
            key: "L0".into(),
            owner: held.owner.clone(),
            fence: held.fence,
        };
        let write = |value: &str| {
            let change = Change::Write {
                value: Item::str(value),
                prev: None,
            };
            let (store, at) = (&store, &at);
            async move { store.arm(at, change).await?.fire().await }
        };
        write("a").await.unwrap();
        locks.release(&held).await.unwrap();
        assert_eq!(
            write("b").await.unwrap_err(),
            CallError::definite("stale-fence")
        );
    }
}
