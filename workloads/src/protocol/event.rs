//! Lines from a worker: replies, and events that nobody asked for.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::reply::{FlatValue, Kind};
use super::{Fence, ProtocolError, RawReply, Reply};

/// What a worker says without being asked.
///
/// `after` is the id of the last request that it had read before it sent the
/// renewal, or before it noticed the loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerEvent {
    Renew {
        key: Arc<str>,
        owner: Arc<str>,
        fence: Option<Fence>,
        /// `None`: the answer is unknown.
        ok: Option<bool>,
        ttl_ms: Option<u64>,
        after: u64,
    },
    Lost {
        key: Arc<str>,
        owner: Arc<str>,
        fence: Option<Fence>,
        reason: Arc<str>,
        after: u64,
    },
    /// The acquire of this id waits in the service's queue.
    Queued { id: u64 },
    /// A message of the service about the queued acquire of this id came: one for each message.
    Woken { id: u64 },
    /// The operation of this id stopped at a point and waits for `go`.
    Point { name: Arc<str>, id: u64 },
}

/// One line from a worker, as the controller reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromWorker {
    Reply(RawReply),
    Event(WorkerEvent),
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum EventName {
    Renew,
    Lost,
    Queued,
    Woken,
    Point,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Flat {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<Kind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<FlatValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<EventName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<Fence>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ok: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<u64>,
}

impl Flat {
    fn into_event(self, name: EventName) -> Result<WorkerEvent, ProtocolError> {
        let missing = ProtocolError::missing;
        Ok(match name {
            EventName::Renew => WorkerEvent::Renew {
                key: self.key.ok_or(missing("event renew", "key"))?,
                owner: self.owner.ok_or(missing("event renew", "owner"))?,
                fence: self.fence,
                ok: self.ok,
                ttl_ms: self.ttl_ms,
                after: self.after.ok_or(missing("event renew", "after"))?,
            },
            EventName::Lost => WorkerEvent::Lost {
                key: self.key.ok_or(missing("event lost", "key"))?,
                owner: self.owner.ok_or(missing("event lost", "owner"))?,
                fence: self.fence,
                reason: self.reason.unwrap_or_else(|| "no reason given".into()),
                after: self.after.ok_or(missing("event lost", "after"))?,
            },
            EventName::Queued => WorkerEvent::Queued {
                id: self.id.ok_or(missing("event queued", "id"))?,
            },
            EventName::Woken => WorkerEvent::Woken {
                id: self.id.ok_or(missing("event woken", "id"))?,
            },
            EventName::Point => WorkerEvent::Point {
                name: self.name.ok_or(missing("event point", "name"))?,
                id: self.id.ok_or(missing("event point", "id"))?,
            },
        })
    }
}

impl FromWorker {
    /// Reads one line, without or with its newline.
    ///
    /// # Errors
    /// Anything that is not a reply or event of the protocol.
    pub fn parse(line: &[u8]) -> Result<FromWorker, ProtocolError> {
        let flat: Flat = super::object(line)?;
        if let Some(name) = flat.event {
            return flat.into_event(name).map(FromWorker::Event);
        }
        let kind = flat.kind.ok_or(ProtocolError::missing("reply", "type"))?;
        if kind == Kind::Ok && flat.error.is_some() {
            let text = "an ok carries an \"error\": answer fail or info instead";
            return Err(ProtocolError::Other(text.into()));
        }
        Ok(FromWorker::Reply(RawReply {
            id: flat.id.ok_or(ProtocolError::missing("reply", "id"))?,
            kind,
            value: flat.value,
            error: flat.error,
        }))
    }
}

fn put(flat: &Flat, out: &mut Vec<u8>) {
    serde_json::to_writer(&mut *out, flat).expect("invariant: maps have string keys");
    out.push(b'\n');
}

impl Reply {
    /// Appends the line and its newline.
    pub fn write_line(&self, out: &mut Vec<u8>) {
        let raw = self.to_raw();
        let flat = Flat {
            id: Some(raw.id),
            kind: Some(raw.kind),
            value: raw.value,
            error: raw.error,
            ..Flat::default()
        };
        put(&flat, out);
    }
}

impl WorkerEvent {
    /// Appends the line and its newline.
    pub fn write_line(&self, out: &mut Vec<u8>) {
        let mut f = Flat::default();
        match self.clone() {
            WorkerEvent::Renew {
                key,
                owner,
                fence,
                ok,
                ttl_ms,
                after,
            } => {
                f.event = Some(EventName::Renew);
                (f.key, f.owner, f.fence) = (Some(key), Some(owner), fence);
                (f.ok, f.ttl_ms, f.after) = (ok, ttl_ms, Some(after));
            }
            WorkerEvent::Lost {
                key,
                owner,
                fence,
                reason,
                after,
            } => {
                f.event = Some(EventName::Lost);
                (f.key, f.owner, f.fence) = (Some(key), Some(owner), fence);
                (f.reason, f.after) = (Some(reason), Some(after));
            }
            WorkerEvent::Queued { id } => {
                f.event = Some(EventName::Queued);
                f.id = Some(id);
            }
            WorkerEvent::Woken { id } => {
                f.event = Some(EventName::Woken);
                f.id = Some(id);
            }
            WorkerEvent::Point { name, id } => {
                f.event = Some(EventName::Point);
                (f.name, f.id) = (Some(name), Some(id));
            }
        }
        put(&f, out);
    }
}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
