//! The stream: many operations pipelined on one WebSocket, wake-ups and lost notices pushed on it.
//!
//! A text message holds one or more JSON objects, one a line. Requests carry an `id`; every answer repeats it.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use foldhash::HashMap;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::locks::{AcquireBody, acquire_op, lock_json, request_id, same_group};
use super::sessions::{Wanted, open_op, opened_json};
use super::{ApiError, App, Caller, parse_session, session_text};
use crate::group::{Answer, Cmd, Group, Notice, ReplyTo};
use crate::machine::{Ended, Op, Release, Reply, SessionId};

/// Requests on the way for one stream; at the limit nothing more is read from it.
const IN_FLIGHT: usize = 4096;
const MESSAGE_LIMIT: usize = 256 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    id: u64,
    op: &'a str,
    session: Option<&'a str>,
    #[serde(borrow)]
    lock: Option<Cow<'a, str>>,
    #[serde(borrow)]
    mode: Option<Cow<'a, str>>,
    permits: Option<u32>,
    #[serde(default)]
    wait_ms: u64,
    #[serde(borrow)]
    owner: Option<Cow<'a, str>>,
    request_id: Option<u64>,
    epoch: Option<u64>,
    token: Option<u64>,
    ttl_ms: Option<u64>,
    #[serde(borrow)]
    client: Option<Cow<'a, str>>,
    group: Option<u32>,
    #[serde(borrow)]
    namespace: Option<Cow<'a, str>>,
}

/// What an answer needs to know of its request.
enum Asked {
    Plain,
    Renewal,
    Open(Group),
    Show(Group, String),
    Check(Group, String, u64),
}

/// `GET /v1/stream`
pub(super) async fn upgrade(
    State(app): State<Arc<App>>,
    caller: Caller,
    ws: WebSocketUpgrade,
) -> Response {
    ws.max_message_size(MESSAGE_LIMIT)
        .on_upgrade(move |socket| run(app, caller, socket))
}

/// One stream's state: lines in, lines out.
pub(crate) struct Lines {
    app: Arc<App>,
    caller: Caller,
    answers: mpsc::UnboundedSender<(u64, Answer)>,
    notices: mpsc::UnboundedSender<Notice>,
    asked: HashMap<u64, Asked>,
    /// Lines to be sent.
    pub(crate) out: String,
}

async fn run(app: Arc<App>, caller: Caller, mut socket: WebSocket) {
    let (mut session, mut answered, mut noticed) = Lines::new(app, caller);
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            count = answered.recv_many(&mut batch, 1024) => {
                if count == 0 { return; }
                for (id, answer) in batch.drain(..) { session.answer(id, answer); }
            }
            Some(notice) = noticed.recv() => session.notice(&notice),
            message = socket.recv(), if session.has_room() => match message {
                Some(Ok(Message::Text(text))) => {
                    for line in text.lines().filter(|line| !line.is_empty()) { session.request(line); }
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Binary(_))) => session.error(0, &ApiError::bad_request("send text messages")),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
            },
        }
        if !session.out.is_empty() {
            let text = std::mem::take(&mut session.out);
            if socket.send(Message::Text(text.into())).await.is_err() {
                return;
            }
        }
    }
}

type Answers = mpsc::UnboundedReceiver<(u64, Answer)>;

impl Lines {
    /// A stream's state, its answers and its notices.
    pub(crate) fn new(
        app: Arc<App>,
        caller: Caller,
    ) -> (Self, Answers, mpsc::UnboundedReceiver<Notice>) {
        let (answers, answered) = mpsc::unbounded_channel();
        let (notices, noticed) = mpsc::unbounded_channel();
        let (asked, out) = (HashMap::default(), String::new());
        (
            Lines {
                app,
                caller,
                answers,
                notices,
                asked,
                out,
            },
            answered,
            noticed,
        )
    }

    /// May more be read?
    pub(crate) fn has_room(&self) -> bool {
        self.asked.len() < IN_FLIGHT
    }

    pub(crate) fn request(&mut self, line: &str) {
        let parsed: Result<Line<'_>, _> = serde_json::from_str(line);
        match parsed {
            Ok(line) => {
                let id = line.id;
                if self.asked.contains_key(&id) {
                    self.error(
                        id,
                        &ApiError::bad_request("a request with this id is still unanswered"),
                    );
                } else if let Err(error) = self.dispatch(line) {
                    self.asked.remove(&id);
                    self.error(id, &error);
                }
            }
            Err(error) => self.error(0, &ApiError::bad_request(format!("line: {error}"))),
        }
    }

    fn dispatch(&mut self, line: Line<'_>) -> Result<(), ApiError> {
        let to = ReplyTo::Many(self.answers.clone(), line.id);
        let app = Arc::clone(&self.app);
        match line.op {
            "acquire" => {
                let name = lock_of(&line)?;
                let group = app.enter(&self.caller, name)?;
                let op = acquire_op(&app, name, acquire_body(&line)?)?;
                same_group(group.id, op.session)?;
                self.send(
                    line.id,
                    Asked::Plain,
                    group,
                    Cmd::Propose {
                        op: Op::Acquire(op),
                        to,
                    },
                );
            }
            "release" => {
                let name = lock_of(&line)?;
                let group = app.enter_uncounted(&self.caller, name)?;
                let op = release_op(name, &line)?;
                same_group(group.id, op.session)?;
                self.send(
                    line.id,
                    Asked::Plain,
                    group,
                    Cmd::Propose {
                        op: Op::Release(op),
                        to,
                    },
                );
            }
            "keepalive" => {
                let session = session_of(&line)?;
                self.send(
                    line.id,
                    Asked::Renewal,
                    app.enter_session(&self.caller, session)?,
                    Cmd::Keepalive { session, to },
                );
            }
            "show" => {
                let name = lock_of(&line)?;
                let group = app.enter(&self.caller, name)?;
                self.send(
                    line.id,
                    Asked::Show(group.clone(), name.to_owned()),
                    group,
                    Cmd::Confirm { to },
                );
            }
            "check" => {
                let name = lock_of(&line)?;
                let group = app.enter(&self.caller, name)?;
                let token = line
                    .token
                    .ok_or_else(|| ApiError::bad_request("check needs token"))?;
                self.send(
                    line.id,
                    Asked::Check(group.clone(), name.to_owned(), token),
                    group,
                    Cmd::Confirm { to },
                );
            }
            "open" => {
                let wanted = Wanted {
                    ttl_ms: line.ttl_ms,
                    client: line.client.as_deref().unwrap_or(""),
                    lock: line.lock.as_deref(),
                    namespace: line.namespace.as_deref(),
                    group: line.group,
                };
                let (group, op) = open_op(&app, &self.caller, wanted)?;
                if let Op::Open { session, .. } = op {
                    self.watch(group, session);
                }
                self.send(
                    line.id,
                    Asked::Open(group.clone()),
                    group,
                    Cmd::Propose { op, to },
                );
            }
            "close" => {
                let session = session_of(&line)?;
                let cmd = Cmd::Propose {
                    op: Op::Close { session },
                    to,
                };
                let group = app.enter_session(&self.caller, session)?;
                self.send(line.id, Asked::Plain, group, cmd);
            }
            "attach" => {
                let session = session_of(&line)?;
                let group = app.enter_session(&self.caller, session)?;
                self.watch(group, session);
                self.send(
                    line.id,
                    Asked::Renewal,
                    group,
                    Cmd::Keepalive { session, to },
                );
            }
            other => return Err(ApiError::bad_request(format!("no op {other:?}"))),
        }
        Ok(())
    }

    fn send(&mut self, id: u64, asked: Asked, group: &Group, cmd: Cmd) {
        self.asked.insert(id, asked);
        group.send(cmd);
    }

    fn watch(&self, group: &Group, session: SessionId) {
        group.shared.hub().watch(session, self.notices.clone());
    }

    pub(crate) fn answer(&mut self, id: u64, answer: Answer) {
        if let Answer::Reply(Reply::Queued { ahead }) = answer {
            let _ = writeln!(self.out, r#"{{"id":{id},"queued":{ahead}}}"#);
            return;
        }
        // A wait that was answered already may be woken once more by a repeated request's registration.
        let Some(asked) = self.asked.remove(&id) else {
            return;
        };
        match (answer, asked) {
            (Answer::Reply(Reply::Granted { token, count }), _) => {
                let _ = writeln!(self.out, r#"{{"id":{id},"token":{token},"count":{count}}}"#);
            }
            (Answer::Woken { token }, _) => {
                let _ = writeln!(self.out, r#"{{"id":{id},"token":{token},"count":1}}"#);
            }
            (Answer::Reply(Reply::Released { remaining }), _) => {
                let _ = writeln!(
                    self.out,
                    r#"{{"id":{id},"released":true,"remaining":{remaining}}}"#
                );
            }
            (Answer::Alive { ttl_ms, epoch }, _) => {
                let _ = writeln!(
                    self.out,
                    r#"{{"id":{id},"ttl_ms":{ttl_ms},"epoch":{epoch}}}"#
                );
            }
            (Answer::Reply(Reply::Ended { released }), _) => {
                let _ = writeln!(
                    self.out,
                    r#"{{"id":{id},"closed":true,"released":{released}}}"#
                );
            }
            (Answer::Reply(Reply::Opened { session }), Asked::Open(group)) => {
                let value = opened_json(&self.app, &group, session);
                self.value(id, value);
            }
            (Answer::Confirmed, Asked::Show(group, name)) => {
                self.value(id, lock_json(&group, &name))
            }
            (Answer::Confirmed, Asked::Check(group, name, token)) => {
                let current = group.shared.machine().token_is_current(&name, token);
                let _ = writeln!(self.out, r#"{{"id":{id},"current":{current}}}"#);
            }
            (other, asked) => {
                if matches!(asked, Asked::Renewal) {
                    self.app.renew_failures.fetch_add(1, Ordering::Relaxed);
                }
                let error = ApiError::of(&other, &self.app);
                self.error(id, &error);
            }
        }
    }

    fn value(&mut self, id: u64, mut value: Value) {
        value["id"] = json!(id);
        let _ = writeln!(self.out, "{value}");
    }

    fn error(&mut self, id: u64, error: &ApiError) {
        let mut value = error.json();
        value["id"] = json!(id);
        let _ = writeln!(self.out, "{value}");
    }

    pub(crate) fn notice(&mut self, notice: &Notice) {
        let value = match notice {
            Notice::Deposed => json!({ "deposed": true }),
            Notice::Ended { session, why, lost } => json!({ "lost": {
                "session": session_text(*session),
                "reason": if *why == Ended::Expired { "expired" } else { "closed" },
                "locks": lost.iter().map(|(name, token)| json!({ "lock": name, "token": token })).collect::<Vec<_>>(),
            }}),
        };
        let _ = writeln!(self.out, "{value}");
    }
}

fn session_of(line: &Line<'_>) -> Result<SessionId, ApiError> {
    parse_session(
        line.session
            .ok_or_else(|| ApiError::bad_request("session is missing"))?,
    )
}

fn lock_of<'a>(line: &'a Line<'_>) -> Result<&'a str, ApiError> {
    line.lock
        .as_deref()
        .ok_or_else(|| ApiError::bad_request("lock is missing"))
}

fn acquire_body(line: &Line<'_>) -> Result<AcquireBody, ApiError> {
    Ok(AcquireBody {
        session: session_text(session_of(line)?),
        mode: line.mode.as_deref().map(str::to_owned),
        permits: line.permits,
        wait_ms: line.wait_ms,
        owner: line.owner.as_deref().map(str::to_owned),
        request_id: line.request_id,
        epoch: line.epoch,
    })
}

fn release_op(name: &str, line: &Line<'_>) -> Result<Release, ApiError> {
    Ok(Release {
        session: session_of(line)?,
        request: request_id(line.request_id)?,
        epoch: line.epoch,
        name: Arc::from(name),
        token: line
            .token
            .ok_or_else(|| ApiError::bad_request("release needs token"))?,
    })
}
