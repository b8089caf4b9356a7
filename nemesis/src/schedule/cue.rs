//! What happened in the run, as far as the schedule cares.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// What a fault can be triggered by. All but `acquire`, `queued`, `point`, `lost` and `exit`
/// mean that the operation was acknowledged (its `ok` was read).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CueKind {
    /// An acquire is about to be sent.
    Acquire,
    /// A worker waits in the service's queue.
    Queued,
    /// An acquire was answered ok.
    Grant,
    Renew,
    Read,
    /// A write or an `add` was answered ok.
    Write,
    Release,
    /// A worker learned that its lease is gone.
    Lost,
    /// A worker stands at a point, where the schedule asked it to stop.
    Point,
    /// A worker's process ended.
    Exit,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cue {
    pub kind: CueKind,
    pub worker: u32,
    pub lock: Option<Arc<str>>,
    pub owner: Option<Arc<str>>,
    /// For `point`: its name, and the id of the operation that stands there.
    pub point: Option<(Arc<str>, u64)>,
}

impl Cue {
    pub fn new(kind: CueKind, worker: u32, lock: Option<Arc<str>>) -> Self {
        Cue {
            kind,
            worker,
            lock,
            owner: None,
            point: None,
        }
    }

    #[must_use]
    pub fn owner(mut self, owner: Option<Arc<str>>) -> Self {
        self.owner = owner;
        self
    }

    /// `op` is the id of the request that waits for `go`.
    #[must_use]
    pub fn at_point(mut self, name: impl Into<Arc<str>>, op: u64) -> Self {
        self.point = Some((name.into(), op));
        self
    }
}
