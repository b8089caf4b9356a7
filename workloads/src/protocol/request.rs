//! Lines from the controller to a worker.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Fence, Item, ProtocolError};

/// Free-form parameters of a system or store.
pub type Params = serde_json::Map<String, serde_json::Value>;

/// A request's `op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OpName {
    Init,
    Acquire,
    Renew,
    Release,
    Read,
    Write,
    Add,
    Ping,
    Close,
}

/// How a lock is to be held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    #[default]
    Exclusive,
    Shared,
    Semaphore,
}

/// A server of the system under test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    pub name: String,
    /// `host:port`.
    pub addr: String,
}

/// The lock system that a worker is to use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemConf {
    pub name: String,
    #[serde(default)]
    pub endpoints: Vec<Endpoint>,
    #[serde(default)]
    pub params: Params,
}

/// The store that the lock guards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreConf {
    pub kind: String,
    /// `host:port`; empty where the kind needs none.
    #[serde(default)]
    pub addr: String,
    #[serde(default = "yes")]
    pub fenced: bool,
    #[serde(default)]
    pub params: Params,
}

fn yes() -> bool {
    true
}

#[derive(Clone, Debug, PartialEq)]
pub struct Init {
    pub protocol: u32,
    pub worker: u32,
    pub clients: u32,
    pub seed: u64,
    pub system: SystemConf,
    pub store: StoreConf,
    /// Lease asked for by default, in ms; `None` for locks without a lease.
    pub ttl_ms: Option<u64>,
    /// Bound of one call to the service or store, in ms.
    pub timeout_ms: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Acquire {
    pub client: u32,
    pub key: Arc<str>,
    pub mode: Mode,
    pub ttl_ms: Option<u64>,
    /// How long to wait for a busy lock, in ms; 0 tries once.
    pub wait_ms: u64,
    /// Capacity of a semaphore.
    pub permits: Option<u32>,
}

/// A grant as the caller names it. Fields of `release` and `read`.
#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    pub client: u32,
    pub key: Arc<str>,
    pub owner: Arc<str>,
    pub fence: Option<Fence>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Renew {
    pub hold: Hold,
    pub ttl_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    pub hold: Hold,
    pub value: Item,
    pub prev: Option<Item>,
    pub stop_at: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Add {
    pub hold: Hold,
    pub element: Item,
    /// Pause between reading the set and writing it back, in ms.
    pub work_ms: u64,
    pub stop_at: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    Init(Box<Init>),
    Acquire(Acquire),
    Renew(Renew),
    Release(Hold),
    Read(Hold),
    Write(Write),
    Add(Add),
    Ping,
    Close,
}

impl Op {
    pub fn name(&self) -> OpName {
        match self {
            Op::Init(_) => OpName::Init,
            Op::Acquire(_) => OpName::Acquire,
            Op::Renew(_) => OpName::Renew,
            Op::Release(_) => OpName::Release,
            Op::Read(_) => OpName::Read,
            Op::Write(_) => OpName::Write,
            Op::Add(_) => OpName::Add,
            Op::Ping => OpName::Ping,
            Op::Close => OpName::Close,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub id: u64,
    pub op: Op,
}

/// One line to a worker.
#[derive(Clone, Debug, PartialEq)]
pub enum ToWorker {
    Request(Request),
    /// Goes on with the operation of this id, stopped at a point.
    Go(u64),
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Flat {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    op: Option<OpName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<Fence>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<Mode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permits: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Item>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prev: Option<Item>,
    #[serde(skip_serializing_if = "Option::is_none")]
    element: Option<Item>,
    #[serde(skip_serializing_if = "Option::is_none")]
    work_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_at: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    go: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clients: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<SystemConf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<StoreConf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
}

fn need<T>(v: Option<T>, what: &'static str, field: &'static str) -> Result<T, ProtocolError> {
    v.ok_or(ProtocolError::missing(what, field))
}

impl Flat {
    fn hold(&mut self, what: &'static str) -> Result<Hold, ProtocolError> {
        Ok(Hold {
            client: need(self.client, what, "client")?,
            key: need(self.key.take(), what, "key")?,
            owner: need(self.owner.take(), what, "owner")?,
            fence: self.fence,
        })
    }

    fn with_hold(mut self, h: &Hold) -> Flat {
        self.client = Some(h.client);
        self.key = Some(h.key.clone());
        self.owner = Some(h.owner.clone());
        self.fence = h.fence;
        self
    }

    fn into_op(mut self) -> Result<Op, ProtocolError> {
        Ok(match need(self.op, "request", "op")? {
            OpName::Init => Op::Init(Box::new(Init {
                protocol: need(self.protocol, "init", "protocol")?,
                worker: need(self.worker, "init", "worker")?,
                clients: need(self.clients, "init", "clients")?,
                seed: self.seed.unwrap_or(0),
                system: need(self.system, "init", "system")?,
                store: need(self.store, "init", "store")?,
                ttl_ms: self.ttl_ms,
                timeout_ms: need(self.timeout_ms, "init", "timeout_ms")?,
            })),
            OpName::Acquire => Op::Acquire(Acquire {
                client: need(self.client, "acquire", "client")?,
                key: need(self.key, "acquire", "key")?,
                mode: self.mode.unwrap_or_default(),
                ttl_ms: self.ttl_ms,
                wait_ms: self.wait_ms.unwrap_or(0),
                permits: self.permits,
            }),
            OpName::Renew => Op::Renew(Renew {
                hold: self.hold("renew")?,
                ttl_ms: self.ttl_ms,
            }),
            OpName::Release => Op::Release(self.hold("release")?),
            OpName::Read => Op::Read(self.hold("read")?),
            OpName::Write => Op::Write(Write {
                hold: self.hold("write")?,
                value: need(self.value, "write", "value")?,
                prev: self.prev,
                stop_at: self.stop_at,
            }),
            OpName::Add => Op::Add(Add {
                hold: self.hold("add")?,
                element: need(self.element, "add", "element")?,
                work_ms: self.work_ms.unwrap_or(0),
                stop_at: self.stop_at,
            }),
            OpName::Ping => Op::Ping,
            OpName::Close => Op::Close,
        })
    }

    fn of(request: &Request) -> Flat {
        let flat = Flat {
            id: Some(request.id),
            op: Some(request.op.name()),
            ..Flat::default()
        };
        match &request.op {
            Op::Init(i) => Flat {
                protocol: Some(i.protocol),
                worker: Some(i.worker),
                clients: Some(i.clients),
                seed: Some(i.seed),
                system: Some(i.system.clone()),
                store: Some(i.store.clone()),
                ttl_ms: i.ttl_ms,
                timeout_ms: Some(i.timeout_ms),
                ..flat
            },
            Op::Acquire(a) => Flat {
                client: Some(a.client),
                key: Some(a.key.clone()),
                mode: Some(a.mode),
                ttl_ms: a.ttl_ms,
                wait_ms: Some(a.wait_ms),
                permits: a.permits,
                ..flat
            },
            Op::Renew(r) => Flat {
                ttl_ms: r.ttl_ms,
                ..flat
            }
            .with_hold(&r.hold),
            Op::Release(h) | Op::Read(h) => flat.with_hold(h),
            Op::Write(w) => Flat {
                value: Some(w.value.clone()),
                prev: w.prev.clone(),
                stop_at: w.stop_at.clone(),
                ..flat
            }
            .with_hold(&w.hold),
            Op::Add(a) => Flat {
                element: Some(a.element.clone()),
                work_ms: Some(a.work_ms),
                stop_at: a.stop_at.clone(),
                ..flat
            }
            .with_hold(&a.hold),
            Op::Ping | Op::Close => flat,
        }
    }
}

impl ToWorker {
    /// Reads one line, without or with its newline.
    ///
    /// # Errors
    /// Anything that is not a request or `go` of the protocol.
    pub fn parse(line: &[u8]) -> Result<ToWorker, ProtocolError> {
        let flat: Flat = super::object(line)?;
        match (flat.id, flat.go) {
            (Some(id), None) => flat
                .into_op()
                .map(|op| ToWorker::Request(Request { id, op })),
            (None, Some(id)) => Ok(ToWorker::Go(id)),
            _ => Err(ProtocolError::missing("request", "id")),
        }
    }

    /// Appends the line and its newline.
    pub fn write_line(&self, out: &mut Vec<u8>) {
        let flat = match self {
            ToWorker::Request(r) => Flat::of(r),
            ToWorker::Go(id) => Flat {
                go: Some(*id),
                ..Flat::default()
            },
        };
        serde_json::to_writer(&mut *out, &flat).expect("invariant: maps have string keys");
        out.push(b'\n');
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
