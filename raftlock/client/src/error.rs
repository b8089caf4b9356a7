//! Outcomes of calls.

use serde::Deserialize;

/// What the server advises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// Do not repeat it.
    #[default]
    No,
    /// The same again after a while.
    Later,
    /// The same at another node.
    OtherNode,
    /// Open a new session first.
    NewSession,
    /// The same request id again.
    SameRequest,
}

/// Why a call did not succeed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{code}: {message}")]
pub struct CallError {
    /// The server's word (`busy`, `wait_timeout`, `session_unknown`, …), or `connect`, `timeout`, `transport`, `protocol`.
    pub code: String,
    /// A sentence.
    pub message: String,
    /// What to do next.
    pub retry: Retry,
    /// Suggested pause, ms.
    pub retry_after_ms: Option<u64>,
    /// The current epoch, where the server named it.
    pub epoch: Option<u64>,
    /// Base URL of the leader, where the server named it.
    pub leader: Option<Box<str>>,
    /// Version of the bucket map, where it was refused by it.
    pub map: Option<u64>,
}

impl CallError {
    pub(crate) fn local(code: &str, message: impl ToString, retry: Retry) -> Self {
        CallError {
            code: code.to_owned(),
            message: message.to_string(),
            retry,
            retry_after_ms: None,
            epoch: None,
            leader: None,
            map: None,
        }
    }
}

/// How a call ended.
#[derive(Debug, Clone)]
pub enum Outcome<T> {
    /// Done.
    Ok(T),
    /// Surely nothing happened, nor ever will.
    DefiniteFail(CallError),
    /// It may have happened, or may still happen.
    Unknown(CallError),
}

impl<T> Outcome<T> {
    /// The value, or the error whatever its kind.
    pub fn result(self) -> Result<T, CallError> {
        match self {
            Outcome::Ok(value) => Ok(value),
            Outcome::DefiniteFail(error) | Outcome::Unknown(error) => Err(error),
        }
    }

    /// The value, if it was done.
    pub fn ok(self) -> Option<T> {
        self.result().ok()
    }

    pub(crate) fn map<U>(self, with: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Outcome::Ok(value) => Outcome::Ok(with(value)),
            Outcome::DefiniteFail(error) => Outcome::DefiniteFail(error),
            Outcome::Unknown(error) => Outcome::Unknown(error),
        }
    }
}

/// An error as the server writes it.
#[derive(Debug, Deserialize)]
pub(crate) struct WireError {
    pub(crate) code: String,
    message: String,
    pub(crate) effect: String,
    #[serde(default)]
    pub(crate) retry: Retry,
    retry_after_ms: Option<u64>,
    pub(crate) leader: Option<String>,
    epoch: Option<u64>,
    pub(crate) map: Option<u64>,
}

impl WireError {
    /// Definite only if the server says that nothing happened.
    pub(crate) fn outcome<T>(self) -> Outcome<T> {
        let definite = self.effect == "none";
        let error = CallError {
            code: self.code,
            message: self.message,
            retry: self.retry,
            retry_after_ms: self.retry_after_ms,
            epoch: self.epoch,
            leader: self.leader.map(String::into_boxed_str),
            map: self.map,
        };
        if definite {
            Outcome::DefiniteFail(error)
        } else {
            Outcome::Unknown(error)
        }
    }
}
