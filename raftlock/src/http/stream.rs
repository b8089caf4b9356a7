//! The stream's lines: many operations pipelined, wake-ups and lost notices pushed.
//!
//! A message holds one or more JSON objects, one a line. Requests carry an `id`; every answer repeats it.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use foldhash::HashMap;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::locks::{
    AcquireBody, acquire_op, lock_json, request_id, same_group, undone_json, withdrawal,
};
use super::sessions::{Wanted, open_op, opened_json};
use super::{ApiError, App, Caller, parse_session, session_text};
use crate::group::{Answer, Cmd, Group, Notice, ReplyTo};
use crate::machine::{Ended, Op, Release, Reply, SessionId};

/// Requests on the way for one stream; at the limit no more are taken from it.
const IN_FLIGHT: usize = 4096;

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
    /// Whether the session's end was not watched before.
    Attach(Group, SessionId, bool),
    Open(Group, SessionId),
    Show(Group, String),
    Check(Group, String, u64),
}

/// One stream's state: lines in, lines out.
pub(crate) struct Lines {
    app: Arc<App>,
    pub(super) caller: Caller,
    answers: mpsc::UnboundedSender<(u64, Answer)>,
    notices: mpsc::UnboundedSender<Notice>,
    asked: HashMap<u64, Asked>,
    /// Lines to be sent.
    pub(crate) out: String,
}

/// Answers to a stream's requests.
pub(crate) type Answers = mpsc::UnboundedReceiver<(u64, Answer)>;
/// What a stream is told without asking.
pub(crate) type Notices = mpsc::UnboundedReceiver<Notice>;

impl Lines {
    /// A stream's state, its answers and its notices.
    pub(crate) fn new(app: Arc<App>, caller: Caller) -> (Self, Answers, Notices) {
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
        let app = Arc::clone(&self.app);
        let id = line.id;
        match line.op {
            "acquire" => {
                let name = lock_of(&line)?;
                let group = app.enter(&self.caller, name)?;
                let op = acquire_op(&app, name, acquire_body(&line)?)?;
                same_group(&app, group.id, op.session)?;
                self.propose(id, Asked::Plain, group, Op::Acquire(op));
            }
            "release" => {
                let name = lock_of(&line)?;
                let group = app.enter_uncounted(&self.caller, name)?;
                let op = release_op(name, &line)?;
                same_group(&app, group.id, op.session)?;
                self.propose(id, Asked::Plain, group, Op::Release(op));
            }
            "withdraw" => {
                let name = lock_of(&line)?;
                let group = app.enter_uncounted(&self.caller, name)?;
                let request = line
                    .request_id
                    .ok_or_else(|| ApiError::bad_request("request_id is missing"))?;
                let op = withdrawal(name, session_of(&line)?, request)?;
                same_group(&app, group.id, op.session)?;
                self.propose(id, Asked::Plain, group, Op::Withdraw(op));
            }
            "keepalive" => {
                let session = session_of(&line)?;
                let group = app.enter_session(&self.caller, session)?;
                self.renew(id, Asked::Renewal, group, session);
            }
            "show" => {
                let name = lock_of(&line)?;
                let group = app.enter(&self.caller, name)?;
                self.confirm(id, Asked::Show(group.clone(), name.to_owned()), group);
            }
            "check" => {
                let name = lock_of(&line)?;
                let group = app.enter(&self.caller, name)?;
                let token = token_of(&line)?;
                let asked = Asked::Check(group.clone(), name.to_owned(), token);
                self.confirm(id, asked, group);
            }
            "open" => {
                let wanted = Wanted {
                    ttl_ms: line.ttl_ms,
                    client: line.client.as_deref().unwrap_or(""),
                    lock: line.lock.as_deref(),
                    namespace: line.namespace.as_deref(),
                    group: line.group,
                };
                let (group, session, op) = open_op(&app, &self.caller, wanted)?;
                self.watch(group, session);
                self.propose(id, Asked::Open(group.clone(), session), group, op);
            }
            "close" => {
                let session = session_of(&line)?;
                let group = app.enter_session(&self.caller, session)?;
                self.propose(id, Asked::Plain, group, Op::Close { session });
            }
            "attach" => {
                let session = session_of(&line)?;
                let group = app.enter_session(&self.caller, session)?;
                let new = self.watch(group, session);
                let asked = Asked::Attach(group.clone(), session, new);
                self.renew(id, asked, group, session);
            }
            other => return Err(ApiError::bad_request(format!("no op {other:?}"))),
        }
        Ok(())
    }

    /// Where the answer to a request goes, which is on its way from now on.
    fn asked(&mut self, id: u64, asked: Asked) -> ReplyTo {
        self.asked.insert(id, asked);
        ReplyTo::Many(self.answers.clone(), id)
    }

    fn propose(&mut self, id: u64, asked: Asked, group: &Group, op: Op) {
        let to = self.asked(id, asked);
        group.send(Cmd::Propose { op, to });
    }

    fn renew(&mut self, id: u64, asked: Asked, group: &Group, session: SessionId) {
        let to = self.asked(id, asked);
        group.send(Cmd::Keepalive { session, to });
    }

    fn confirm(&mut self, id: u64, asked: Asked, group: &Group) {
        let to = self.asked(id, asked);
        group.send(Cmd::Confirm { to });
    }

    fn watch(&self, group: &Group, session: SessionId) -> bool {
        group.shared.hub().watch(session, &self.notices)
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
            (Answer::Reply(Reply::Withdrawn(undone)), _) => self.value(id, undone_json(undone)),
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
            (Answer::Reply(Reply::Opened { session }), Asked::Open(group, _)) => {
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
                if matches!(asked, Asked::Renewal | Asked::Attach(..)) {
                    self.app.renewal_failed(&other);
                }
                // Nobody ends a session that there is not, so nobody would stop watching it.
                if let Asked::Open(group, session) | Asked::Attach(group, session, true) = &asked {
                    group.shared.hub().unwatch(*session, &self.notices);
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

    pub(super) fn error(&mut self, id: u64, error: &ApiError) {
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

fn token_of(line: &Line<'_>) -> Result<u64, ApiError> {
    line.token
        .ok_or_else(|| ApiError::bad_request("token is missing"))
}

fn release_op(name: &str, line: &Line<'_>) -> Result<Release, ApiError> {
    Ok(Release {
        session: session_of(line)?,
        request: request_id(line.request_id)?,
        epoch: line.epoch,
        name: Arc::from(name),
        token: token_of(line)?,
    })
}
