//! One operation of a client, from its invocation to its completion.

use std::sync::Arc;

use fencepost_history::{Event, Value, names};

use super::{KeyId, Stamp};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum F {
    Acquire,
    Renew,
    Release,
    Read,
    Write,
    Add,
    Other,
}

impl F {
    pub fn of(word: &str) -> F {
        match word {
            names::ACQUIRE => F::Acquire,
            names::RENEW => F::Renew,
            names::RELEASE => F::Release,
            names::READ => F::Read,
            names::WRITE => F::Write,
            names::ADD => F::Add,
            _ => F::Other,
        }
    }
}

/// How a lock is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Exclusive,
    Shared,
    Semaphore,
}

impl Mode {
    pub fn of(word: &str) -> Mode {
        match word {
            "shared" => Mode::Shared,
            "semaphore" => Mode::Semaphore,
            _ => Mode::Exclusive,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Op {
    pub process: u64,
    pub worker: Option<u32>,
    pub f: F,
    pub key: KeyId,
    pub name: Arc<str>,
    pub invoke: Stamp,
    /// The operation took effect, if at all, no earlier than this: its invocation, or where its
    /// worker was stopped then, or stopped at a point before the effect, the moment at which it was let go.
    pub act: Stamp,
    /// The worker is stopped, and what it does next for this operation it does after.
    pub frozen: bool,
    pub at_point: bool,
    pub owner: Value,
    pub fence: Option<u64>,
    pub mode: Mode,
    pub ttl_ms: Option<f64>,
    /// What is written or added.
    pub value: Value,
    pub prev: Value,
    /// The controller's read at the end of a run.
    pub last: bool,
    /// The grant that it names, where that is known.
    pub grant: Option<u64>,
}

impl Op {
    pub fn decode(e: &Event, process: u64, key: KeyId, name: Arc<str>, now: Stamp) -> Op {
        let v = &e.value;
        let take = |n: &str| v.get(n).cloned().unwrap_or_default();
        let f = F::of(&e.f);
        Op {
            process,
            worker: worker_of(v),
            f,
            key,
            name,
            invoke: now,
            act: now,
            frozen: false,
            at_point: false,
            owner: take("owner"),
            fence: v.get("fence").and_then(Value::as_u64),
            mode: v
                .get("mode")
                .and_then(Value::as_str)
                .map(Mode::of)
                .unwrap_or_default(),
            ttl_ms: v.get("ttl_ms").and_then(number),
            value: match f {
                F::Add => take("element"),
                F::Write => take("value"),
                _ => Value::Null,
            },
            prev: take("prev"),
            last: v.get("final").and_then(Value::as_bool) == Some(true),
            grant: None,
        }
    }
}

pub fn worker_of(v: &Value) -> Option<u32> {
    v.get("worker").and_then(Value::as_u64)?.try_into().ok()
}

pub fn number(v: &Value) -> Option<f64> {
    match v {
        Value::Int(i) => Some(*i as f64),
        Value::Float(x) => Some(*x),
        _ => None,
    }
}

/// Number of a worker process `wN`.
pub fn worker_named(name: &str) -> Option<u32> {
    name.strip_prefix('w')?.parse().ok()
}
