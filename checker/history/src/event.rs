//! One history event and the closed vocabulary around it (docs/history-format.md).

use std::sync::Arc;

use crate::value::Value;

/// What kind of event a line is, as in Jepsen.
///
/// `Fail` surely had no effect. `Info` is unknown: it may take effect at any
/// later time, and it retires the process id that made the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventType {
    Invoke,
    Ok,
    Fail,
    Info,
}

/// Who an event belongs to.
///
/// `Client` ids are logical, sequential processes: the only events that are
/// operations. `Named` are everything else: `nemesis`, `controller`, and the
/// worker processes `w0`, `w1`, … when they report on their own behalf
/// (claims, renewals, losses, points).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Process {
    Client(u64),
    Named(Arc<str>),
}

/// One line of `history.jsonl`.
///
/// `index` is the order of events; `time` is in nanoseconds since the run
/// began, read from the controller's monotonic clock at the moment that the
/// index was given. An invocation is stamped before it is sent and a completion
/// after it was read, so intervals only ever widen.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub index: u64,
    pub time: i64,
    pub process: Process,
    pub kind: EventType,
    /// Operation name: `acquire`, `write`, … (see [`crate::names`]).
    pub f: Arc<str>,
    /// Lock or register that the operation is about; `None` when there is one only.
    pub key: Option<Arc<str>>,
    pub value: Value,
    /// Why an operation failed or is unknown; may accompany an ok.
    pub error: Option<Arc<str>>,
}
