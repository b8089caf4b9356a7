//! One WebSocket to one node: many calls on the way at once, wake-ups and lost notices pushed.
//!
//! Like [`crate::Api`] it repeats nothing. A call on a stream that breaks is unknown; a node that does not lead says so
//! and names the leader. No call has a time limit of its own: wrap it in [`tokio::time::timeout`].

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;

use crate::dial;
use crate::error::{CallError, Outcome, Retry, WireError};
use crate::secure::Security;
use crate::types::{AcquireOptions, Alive, Grant, Mode, SessionInfo, Undone};

/// What a stream says without being asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The acquire with this number (see [`Stream::acquire_numbered`]) is in the queue.
    Queued { call: u64, ahead: u64 },
    /// A session ended with these grants.
    Lost {
        session: String,
        reason: String,
        locks: Vec<(String, u64)>,
    },
    /// The node no longer leads; what was on the way is unknown.
    Deposed,
}

#[derive(Deserialize)]
struct LostLock {
    lock: String,
    token: u64,
}

#[derive(Deserialize)]
struct LostLine {
    session: String,
    reason: String,
    locks: Vec<LostLock>,
}

/// Any line from the server.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Line {
    id: u64,
    token: Option<u64>,
    count: u32,
    queued: Option<u64>,
    session: Option<String>,
    ttl_ms: u64,
    epoch: u64,
    group: u32,
    map: u64,
    remaining: u32,
    released: Value,
    current: bool,
    held: bool,
    waiters: u64,
    was: Option<Undone>,
    error: Option<WireError>,
    lost: Option<LostLine>,
    deposed: bool,
}

/// A node ends a stream whose message is longer.
const MESSAGE_LIMIT: usize = 256 << 10;

/// Requests sent together at most.
const GATHER: usize = 256;

type Pending = HashMap<u64, oneshot::Sender<Line>>;

struct Inner {
    out: mpsc::UnboundedSender<String>,
    /// None once the stream has ended.
    pending: Mutex<Option<Pending>>,
    next: AtomicU64,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Inner {
    fn pending(&self) -> MutexGuard<'_, Option<Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        tasks.iter().for_each(JoinHandle::abort);
    }
}

/// A stream to one node. Cheap to clone; closes with the last clone.
#[derive(Clone)]
pub struct Stream {
    inner: Arc<Inner>,
}

impl Stream {
    /// Connects to the node at `base` (`http://host:port`). Events go to the receiver.
    pub async fn connect(base: &str) -> Result<(Self, mpsc::UnboundedReceiver<Event>), CallError> {
        Self::connect_secured(base, &Security::default()).await
    }

    /// The same with a bearer token, TLS, or both.
    pub async fn connect_secured(
        base: &str,
        security: &Security,
    ) -> Result<(Self, mpsc::UnboundedReceiver<Event>), CallError> {
        let limit = Duration::from_secs(2);
        let silent = |_| {
            CallError::local(
                "connect",
                format!("{base} does not answer"),
                Retry::OtherNode,
            )
        };
        let socket = tokio::time::timeout(limit, dial::dial(base, security))
            .await
            .map_err(silent)??;
        let (mut sink, mut source) = socket.split();
        let (out, mut lines) = mpsc::unbounded_channel::<String>();
        let (events, received) = mpsc::unbounded_channel();
        let pending = Mutex::new(Some(Pending::new()));
        let next = AtomicU64::new(1);
        let inner = Arc::new(Inner {
            out,
            pending,
            next,
            tasks: Mutex::default(),
        });
        let weak = Arc::downgrade(&inner);
        let read = tokio::spawn(async move {
            while let Some(Ok(message)) = source.next().await {
                let Message::Text(text) = message else {
                    continue;
                };
                let Some(inner) = weak.upgrade() else { return };
                for line in text.lines() {
                    take(&inner, &events, line);
                }
            }
            // Dropping the senders tells every caller that its outcome is unknown.
            if let Some(inner) = weak.upgrade() {
                *inner.pending() = None;
            }
        });
        let write = tokio::spawn(async move {
            let mut batch = Vec::new();
            while lines.recv_many(&mut batch, GATHER).await > 0 {
                // Whoever else was woken by the same answers asks now, and goes along: one send for all.
                tokio::task::yield_now().await;
                while batch.len() < GATHER
                    && let Ok(line) = lines.try_recv()
                {
                    batch.push(line);
                }
                for message in messages(batch.drain(..)) {
                    if sink.send(Message::text(message)).await.is_err() {
                        return;
                    }
                }
            }
        });
        inner
            .tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend([read, write]);
        Ok((Stream { inner }, received))
    }

    /// Sends one request; `fields` is the inside of its JSON object after `id`.
    fn send(&self, id: u64, fields: &str) -> oneshot::Receiver<Line> {
        let (tx, rx) = oneshot::channel();
        if let Some(pending) = &mut *self.inner.pending() {
            pending.insert(id, tx);
        }
        let _ = self.inner.out.send(format!("{{\"id\":{id},{fields}}}\n"));
        rx
    }

    /// A number for [`Stream::acquire_numbered`].
    pub fn number(&self) -> u64 {
        self.inner.next.fetch_add(1, Ordering::Relaxed)
    }

    async fn call(&self, fields: &str) -> Outcome<Line> {
        self.numbered(self.number(), fields).await
    }

    async fn numbered(&self, id: u64, fields: &str) -> Outcome<Line> {
        // The id and what stands around it are shorter.
        if fields.len() + 64 > MESSAGE_LIMIT {
            let why = "the request is longer than a message may be, 256 KiB";
            return Outcome::DefiniteFail(CallError::local("too_large", why, Retry::No));
        }
        outcome(self.send(id, fields).await.ok())
    }

    /// Opens a session in the group of `lock`; its end is told as [`Event::Lost`].
    pub async fn create_session(
        &self,
        ttl_ms: u64,
        label: &str,
        lock: &str,
    ) -> Outcome<SessionInfo> {
        let fields = format!(
            r#""op":"open","ttl_ms":{ttl_ms},"client":{},"lock":{}"#,
            Value::from(label),
            Value::from(lock)
        );
        self.call(&fields).await.map(|line| SessionInfo {
            session: line.session.unwrap_or_default(),
            ttl_ms: line.ttl_ms,
            epoch: line.epoch,
            group: line.group,
            map: line.map,
        })
    }

    /// Prolongs a session from the moment this was called.
    pub async fn keepalive(&self, session: &str) -> Outcome<Alive> {
        let line = self
            .call(&format!(r#""op":"keepalive","session":"{session}""#))
            .await;
        line.map(|line| Alive {
            ttl_ms: line.ttl_ms,
            epoch: line.epoch,
        })
    }

    /// Takes a lock.
    pub async fn acquire(
        &self,
        name: &str,
        session: &str,
        options: &AcquireOptions,
    ) -> Outcome<Grant> {
        self.acquire_numbered(self.number(), name, session, options)
            .await
    }

    /// Takes a lock under a number from [`Stream::number`], by which [`Event::Queued`] can be told apart.
    pub async fn acquire_numbered(
        &self,
        number: u64,
        name: &str,
        session: &str,
        options: &AcquireOptions,
    ) -> Outcome<Grant> {
        let fields = acquire_fields(name, session, options);
        let line = self.numbered(number, &fields).await;
        line.map(|line| Grant {
            token: line.token.unwrap_or_default(),
            count: line.count,
        })
    }

    /// Gives a lock back; the value is the re-entrant count that remains.
    pub async fn release(
        &self,
        name: &str,
        session: &str,
        token: u64,
        request_id: Option<u64>,
    ) -> Outcome<u32> {
        let mut fields = format!(
            r#""op":"release","lock":{},"session":"{session}","token":{token}"#,
            Value::from(name)
        );
        if let Some(id) = request_id {
            let _ = write!(fields, r#","request_id":{id}"#);
        }
        self.call(&fields).await.map(|line| line.remaining)
    }

    /// Undoes the acquire with this request id, as [`crate::Api::withdraw`].
    pub async fn withdraw(&self, name: &str, session: &str, request_id: u64) -> Outcome<Undone> {
        let fields = format!(
            r#""op":"withdraw","lock":{},"session":"{session}","request_id":{request_id}"#,
            Value::from(name)
        );
        let line = self.call(&fields).await;
        line.map(|line| line.was.unwrap_or(Undone::Unknown))
    }

    /// Closes a session; the value is how many locks it freed.
    pub async fn close(&self, session: &str) -> Outcome<u64> {
        let line = self
            .call(&format!(r#""op":"close","session":"{session}""#))
            .await;
        line.map(|line| line.released.as_u64().unwrap_or(0))
    }

    /// Is the lock held, and how many wait? A linearizable read.
    pub async fn show(&self, name: &str) -> Outcome<(bool, u64)> {
        let line = self
            .call(&format!(r#""op":"show","lock":{}"#, Value::from(name)))
            .await;
        line.map(|line| (line.held, line.waiters))
    }

    /// Is this token still the current one?
    pub async fn check(&self, name: &str, token: u64) -> Outcome<bool> {
        let line = self
            .call(&format!(
                r#""op":"check","lock":{},"token":{token}"#,
                Value::from(name)
            ))
            .await;
        line.map(|line| line.current)
    }
}

/// The inside of an acquire's object; written by hand, since there are tens of thousands a second.
fn acquire_fields(name: &str, session: &str, options: &AcquireOptions) -> String {
    let mut fields = format!(
        r#""op":"acquire","lock":{},"session":"{session}""#,
        Value::from(name)
    );
    if options.wait_ms > 0 {
        let _ = write!(fields, r#","wait_ms":{}"#, options.wait_ms);
    }
    match options.mode {
        Mode::Exclusive => {}
        Mode::Shared => fields.push_str(r#","mode":"shared""#),
        Mode::Semaphore(permits) => {
            let _ = write!(fields, r#","mode":"semaphore","permits":{permits}"#);
        }
    }
    if let Some(owner) = &options.owner {
        let _ = write!(fields, r#","owner":{}"#, Value::from(owner.as_str()));
    }
    if let Some(id) = options.request_id {
        let _ = write!(fields, r#","request_id":{id}"#);
    }
    if let Some(epoch) = options.epoch {
        let _ = write!(fields, r#","epoch":{epoch}"#);
    }
    fields
}

/// As few messages as hold these lines, none longer than a node takes.
fn messages(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for line in lines {
        match all.last_mut() {
            Some(last) if last.len() + line.len() <= MESSAGE_LIMIT => last.push_str(&line),
            _ => all.push(line),
        }
    }
    all
}

fn take(inner: &Inner, events: &mpsc::UnboundedSender<Event>, text: &str) {
    let Ok(line) = serde_json::from_str::<Line>(text) else {
        tracing::warn!(text, "the server sent a line that is no JSON");
        return;
    };
    let event = if let Some(ahead) = line.queued {
        Event::Queued {
            call: line.id,
            ahead,
        }
    } else if let Some(lost) = line.lost {
        let locks = lost
            .locks
            .into_iter()
            .map(|lost| (lost.lock, lost.token))
            .collect();
        Event::Lost {
            session: lost.session,
            reason: lost.reason,
            locks,
        }
    } else if line.deposed {
        Event::Deposed
    } else {
        let waiting = inner
            .pending()
            .as_mut()
            .and_then(|pending| pending.remove(&line.id));
        if let Some(tx) = waiting {
            let _ = tx.send(line);
        }
        return;
    };
    let _ = events.send(event);
}

fn outcome(line: Option<Line>) -> Outcome<Line> {
    match line {
        None => Outcome::Unknown(CallError::local(
            "transport",
            "the stream broke",
            Retry::SameRequest,
        )),
        Some(Line {
            error: Some(error), ..
        }) => error.outcome(),
        Some(line) => Outcome::Ok(line),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::api::acquire_body;

    #[test]
    fn a_stream_asks_for_the_same_as_a_request() {
        let plain = AcquireOptions {
            wait_ms: 9,
            ..AcquireOptions::default()
        };
        let modes = [Mode::Exclusive, Mode::Shared, Mode::Semaphore(3)];
        let all = modes.map(|mode| AcquireOptions {
            mode,
            owner: Some("o\"w".to_owned()),
            request_id: Some(7),
            epoch: Some(8),
            ..plain.clone()
        });
        for options in all.iter().chain([&plain]) {
            let fields = acquire_fields("a\"b", "00ff", options);
            let mut asked: Value = serde_json::from_str(&format!("{{{fields}}}")).unwrap();
            let object = asked.as_object_mut().unwrap();
            assert_eq!(object.remove("op"), Some(Value::from("acquire")));
            assert_eq!(object.remove("lock"), Some(Value::from("a\"b")));
            assert_eq!(asked, acquire_body("00ff", options));
        }
        let fields = acquire_fields("a", "00ff", &AcquireOptions::default());
        let asked: Value = serde_json::from_str(&format!("{{{fields}}}")).unwrap();
        let body = acquire_body("00ff", &AcquireOptions::default());
        // Left out: 0 is what the server takes for it.
        assert_eq!(
            (asked.get("wait_ms"), &body["wait_ms"]),
            (None, &Value::from(0))
        );
    }
}
