//! Typed errors with retry advice.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::App;
use crate::group::Answer;
use crate::machine::{Refusal, Reply};

/// Characters of a message that may quote the request.
const QUOTE_LIMIT: usize = 300;

/// What a client may do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// Nothing: the request itself is wrong or was refused for good.
    No,
    /// The same again after a while.
    Later,
    /// The same at the node named in `leader`.
    OtherNode,
    /// Open a new session first; all locks of the old one are gone.
    NewSession,
    /// The same request id again: the outcome is unknown, and the id makes the repetition safe.
    SameRequest,
}

/// One error, as JSON under `error`.
#[derive(Debug, Clone, Serialize)]
pub struct ApiError {
    #[serde(skip)]
    status: StatusCode,
    /// Stable word for programs.
    pub code: &'static str,
    /// Sentence for people.
    pub message: Box<str>,
    /// `none`: surely nothing happened. `unknown`: it may have happened or may still happen.
    pub effect: &'static str,
    /// Advice.
    pub retry: Retry,
    /// Suggested pause before a retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Base URL of the node that leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<Box<str>>,
    /// The current epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Version of the bucket map by which it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map: Option<u64>,
}

impl ApiError {
    /// An error that changed nothing and should not be repeated. What the message quotes of a request is cut.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if let Some((cut, _)) = message.char_indices().nth(QUOTE_LIMIT) {
            message.truncate(cut);
            message.push('…');
        }
        ApiError {
            status,
            code,
            message: message.into_boxed_str(),
            effect: "none",
            retry: Retry::No,
            retry_after_ms: None,
            leader: None,
            epoch: None,
            map: None,
        }
    }

    pub(super) fn later(mut self, ms: u64) -> Self {
        self.retry = Retry::Later;
        self.retry_after_ms = Some(ms);
        self
    }

    fn advise(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// The request is malformed.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    /// The cluster is new, and nobody has made its bucket map yet.
    pub fn no_map() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "no_map",
            "this node does not know yet which group keeps which name",
        )
        .later(50)
    }

    /// The session is of another group than the lock, by the bucket map of this version.
    pub fn wrong_group(lock: u32, session: u32, version: u64) -> Self {
        let message = format!(
            "this lock is kept by group {lock}, the session by group {session}; open one for this lock"
        );
        ApiError {
            map: Some(version),
            ..Self::new(StatusCode::CONFLICT, "wrong_group", message).advise(Retry::NewSession)
        }
    }

    /// This replica has stopped.
    pub fn stopped(why: &dyn std::fmt::Display) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "stopping",
            format!("this replica has stopped: {why}"),
        )
        .advise(Retry::OtherNode)
    }

    /// The session is unknown.
    pub fn no_session() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "session_unknown",
            "the session was closed, has expired or never existed",
        )
        .advise(Retry::NewSession)
    }

    /// The wait's deadline passed.
    pub fn wait_timeout() -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "wait_timeout",
            "the lock was not free within wait_ms",
        )
        .later(0)
    }

    /// An answer that is no success.
    pub fn of(answer: &Answer, app: &App) -> Self {
        match answer {
            Answer::Reply(Reply::Refused(refusal)) => Self::refused(*refusal),
            Answer::NoSession | Answer::WaitEnded { expired: true } => Self::no_session(),
            Answer::WaitEnded { expired: false } => Self::wait_timeout(),
            Answer::NotLeader { leader } => Self::not_leader(app.address(*leader)),
            Answer::Overloaded => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "overloaded",
                "too many requests wait on this node",
            )
            .later(100),
            Answer::Stopped => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "stopping",
                "this node is stopping",
            )
            .advise(Retry::OtherNode),
            Answer::Unknown(why) => Self::unknown(why),
            other => Self::unknown(&format!("unexpected answer {other:?}")),
        }
    }

    fn unknown(why: &str) -> Self {
        let mut error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unknown_outcome", why)
            .advise(Retry::SameRequest);
        error.effect = "unknown";
        error
    }

    fn not_leader(leader: Option<String>) -> Self {
        match leader {
            Some(_) => ApiError {
                leader: leader.map(String::into_boxed_str),
                ..Self::new(
                    StatusCode::TEMPORARY_REDIRECT,
                    "not_leader",
                    "another node leads this group",
                )
                .advise(Retry::OtherNode)
            },
            None => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "no_leader",
                "no leader is known now",
            )
            .later(50),
        }
    }

    pub(super) fn refused(refusal: Refusal) -> Self {
        let conflict = |code, message: &str| Self::new(StatusCode::CONFLICT, code, message);
        match refusal {
            Refusal::SessionUnknown => Self::no_session(),
            Refusal::SessionTaken => {
                conflict("session_taken", "drew a session id that exists; ask again").later(0)
            }
            Refusal::StaleEpoch { current } => ApiError {
                epoch: Some(current),
                ..conflict(
                    "stale_epoch",
                    "the leader changed; send a keepalive and use its epoch",
                )
                .later(0)
            },
            Refusal::TooManySessions => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_sessions",
                "the namespace has as many sessions as it may in this group",
            )
            .later(1000),
            Refusal::Busy => conflict("busy", "the lock is held or awaited by others").later(100),
            Refusal::QueueFull => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "queue_full",
                "too many wait for this lock",
            )
            .later(1000),
            Refusal::Delayed => {
                conflict("delayed", "the lock is kept back after its holder failed").later(500)
            }
            Refusal::NotHeld => conflict(
                "not_held",
                "this session does not hold the lock under that token",
            ),
            Refusal::OtherNamespace => conflict(
                "other_namespace",
                "the session is of another namespace than the lock; open one for this lock",
            ),
            Refusal::RequestReused => conflict(
                "request_reused",
                "this session used the request id for another operation",
            ),
            Refusal::Withdrawn => conflict("withdrawn", "this session withdrew the acquire"),
            // Only this node's own map is ever proposed.
            Refusal::StaleMap { current } => ApiError {
                map: Some(current),
                ..conflict("stale_map", "the bucket map has another version")
            },
            Refusal::ModeMismatch => conflict(
                "mode_mismatch",
                "a semaphore of another size is in use under this name",
            ),
        }
    }

    /// The error as the JSON of an answer's body.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({ "error": self })
    }
}

/// Base URL of the node that a client is sent to.
#[derive(Clone)]
pub(super) struct Leader(pub Box<str>);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.json())).into_response();
        if let Some(ms) = self.retry_after_ms
            && let Ok(value) = ms.div_ceil(1000).to_string().parse()
        {
            response.headers_mut().insert(header::RETRY_AFTER, value);
        }
        if let Some(leader) = self.leader {
            response.extensions_mut().insert(Leader(leader));
        }
        response
    }
}
