//! Answers of a worker.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Fence, Item, OpName, ProtocolError};

/// Answer to `init`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    pub protocol: u32,
    pub name: Arc<str>,
    /// How many clients the worker can carry.
    pub clients: u32,
    /// Points at which it can stop.
    pub points: Vec<Arc<str>>,
    /// Whether it checks its own deadline before it writes.
    pub deadline: bool,
}

/// A lock was acquired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    pub owner: Arc<str>,
    pub fence: Option<Fence>,
    /// Lease as granted, in ms; `None` without a lease.
    pub ttl_ms: Option<u64>,
}

/// A grant that a worker believes it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    pub key: Arc<str>,
    pub owner: Arc<str>,
    #[serde(default)]
    pub fence: Option<Fence>,
}

/// What a request came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Hello(Hello),
    Granted(Granted),
    Renewed {
        ttl_ms: Option<u64>,
    },
    Released {
        held: bool,
    },
    Value(Option<Item>),
    Claims(Vec<Claim>),
    /// A write, an add or a close was done.
    Done,
    /// Surely no effect, now and later.
    Fail(Arc<str>),
    /// Unknown: may have taken effect, or may yet.
    Info(Arc<str>),
}

/// A worker's answer to request `id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub id: u64,
    pub answer: Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Ok,
    Fail,
    Info,
}

/// The `value` of an ok, all kinds in one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct FlatValue {
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<Fence>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Item>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claims: Option<Vec<Claim>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clients: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    points: Option<Vec<Arc<str>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<bool>,
}

/// An answer whose meaning depends on the request: see [`RawReply::answer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawReply {
    pub id: u64,
    pub(super) kind: Kind,
    pub(super) value: Option<FlatValue>,
    pub(super) error: Option<Arc<str>>,
}

impl RawReply {
    /// The answer, given the op of the request with this id.
    ///
    /// # Errors
    /// An ok whose value does not fit the op.
    pub fn answer(self, op: OpName) -> Result<Answer, ProtocolError> {
        let error = |e: Option<Arc<str>>| e.unwrap_or_else(|| "no reason given".into());
        match self.kind {
            Kind::Fail => return Ok(Answer::Fail(error(self.error))),
            Kind::Info => return Ok(Answer::Info(error(self.error))),
            Kind::Ok => {}
        }
        let v = self.value;
        let some = |v: Option<FlatValue>, what| v.ok_or(ProtocolError::missing(what, "value"));
        Ok(match op {
            OpName::Init => Answer::Hello(hello(some(v, "ok of init")?)?),
            OpName::Acquire => {
                let v = some(v, "ok of acquire")?;
                Answer::Granted(Granted {
                    owner: v
                        .owner
                        .ok_or(ProtocolError::missing("ok of acquire", "owner"))?,
                    fence: v.fence,
                    ttl_ms: v.ttl_ms,
                })
            }
            OpName::Renew => Answer::Renewed {
                ttl_ms: v.and_then(|v| v.ttl_ms),
            },
            OpName::Release => Answer::Released {
                held: some(v, "ok of release")?
                    .held
                    .ok_or(ProtocolError::missing("ok of release", "held"))?,
            },
            OpName::Read => Answer::Value(some(v, "ok of read")?.value),
            OpName::Ping => Answer::Claims(
                some(v, "ok of ping")?
                    .claims
                    .ok_or(ProtocolError::missing("ok of ping", "claims"))?,
            ),
            OpName::Write | OpName::Add | OpName::Close => Answer::Done,
        })
    }
}

fn hello(v: FlatValue) -> Result<Hello, ProtocolError> {
    let what = "ok of init";
    Ok(Hello {
        protocol: v.protocol.ok_or(ProtocolError::missing(what, "protocol"))?,
        name: v.name.ok_or(ProtocolError::missing(what, "name"))?,
        clients: v.clients.ok_or(ProtocolError::missing(what, "clients"))?,
        points: v.points.unwrap_or_default(),
        deadline: v.deadline.unwrap_or(false),
    })
}

impl Reply {
    /// The same answer in the form in which it goes over the wire.
    pub(super) fn to_raw(&self) -> RawReply {
        let mut raw = RawReply {
            id: self.id,
            kind: Kind::Ok,
            value: None,
            error: None,
        };
        let mut v = FlatValue::default();
        match self.answer.clone() {
            Answer::Hello(h) => {
                v.protocol = Some(h.protocol);
                v.name = Some(h.name);
                v.clients = Some(h.clients);
                v.points = Some(h.points);
                v.deadline = Some(h.deadline);
            }
            Answer::Granted(g) => {
                v.owner = Some(g.owner);
                v.fence = g.fence;
                v.ttl_ms = g.ttl_ms;
            }
            Answer::Renewed { ttl_ms } => v.ttl_ms = ttl_ms,
            Answer::Released { held } => v.held = Some(held),
            Answer::Value(item) => v.value = item,
            Answer::Claims(claims) => v.claims = Some(claims),
            Answer::Done => return raw,
            Answer::Fail(e) => {
                raw.kind = Kind::Fail;
                raw.error = Some(e);
                return raw;
            }
            Answer::Info(e) => {
                raw.kind = Kind::Info;
                raw.error = Some(e);
                return raw;
            }
        }
        raw.value = Some(v);
        raw
    }
}
