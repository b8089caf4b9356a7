//! Operations in words, states as JSON.

use fencepost_history::{Value, json};
use serde_json::{Value as Json, json};
use smallvec::SmallVec;

use std::sync::Arc;

use crate::models::collections::{QueueOp, SetOp};
use crate::models::kv::{KvCall, KvOp};
use crate::models::lock::{Answer, LockCall, LockOp};
use crate::models::locks::Fenced;
use crate::models::multi::Txn;
use crate::models::register::{RegCall, RegOp, Took};
use crate::models::values::{Values, show};

/// Puts an operation and its answer into words.
pub(crate) trait Tell<O>: Sync {
    fn call(&self, op: &O) -> String;
    fn answer(&self, op: &O) -> String;
}

/// Says which state an object is in.
pub(crate) trait TellState<S>: Sync {
    fn state(&self, state: &S) -> Json;
}

/// As JSON would write it; integers beyond 64 bits, which no file holds, as text.
fn plain(value: &Value) -> Json {
    let mut text = Vec::new();
    json::write_value(&mut text, value);
    serde_json::from_slice(&text).unwrap_or_else(|_| show(value).into())
}

/// Owners by number; empty where the model knows none.
pub(crate) struct Locks(pub Vec<String>);

impl Tell<LockOp> for Locks {
    fn call(&self, op: &LockOp) -> String {
        let owner = match self.0.get(op.owner as usize) {
            Some(o) if op.call != LockCall::Held => format!(" for owner {o}"),
            _ => String::new(),
        };
        let weight = if op.weight > 1 && op.weight < u32::MAX {
            format!(" (weight {})", op.weight)
        } else {
            String::new()
        };
        match op.call {
            LockCall::Acquire => format!("acquire{owner}{weight}"),
            LockCall::Release => match op.fence {
                Some(f) => format!("release{owner} of fence {f}"),
                None => format!("release{owner}"),
            },
            LockCall::Held => "asks whether the lock is held".into(),
        }
    }

    fn answer(&self, op: &LockOp) -> String {
        match (op.call, op.answer, op.fence) {
            (_, Answer::Unknown, _) => "unknown".into(),
            (LockCall::Acquire, Answer::Yes, Some(f)) => format!("granted, fence {f}"),
            (LockCall::Acquire, Answer::Yes, None) => "granted".into(),
            (LockCall::Acquire, Answer::No, _) => "busy".into(),
            (LockCall::Release, Answer::Yes, _) => "released, was held".into(),
            (LockCall::Release, Answer::No, _) => "was not held".into(),
            (LockCall::Held, Answer::Yes, _) => "held".into(),
            (LockCall::Held, Answer::No, _) => "free".into(),
        }
    }
}

impl Locks {
    fn owner(&self, owner: u32) -> Json {
        let name = self.0.get(owner as usize);
        name.map_or_else(|| owner.into(), |n| n.as_str().into())
    }

    fn hold(&self, (owner, depth): (u32, u32)) -> Json {
        json!({"owner": self.owner(owner), "depth": depth})
    }
}

impl TellState<u32> for Locks {
    fn state(&self, taken: &u32) -> Json {
        json!({ "taken": taken })
    }
}

impl TellState<SmallVec<[(u32, u32); 2]>> for Locks {
    fn state(&self, holds: &SmallVec<[(u32, u32); 2]>) -> Json {
        let hold = |&(owner, weight): &(u32, u32)| {
            let weight = if weight == u32::MAX {
                json!("all")
            } else {
                json!(weight)
            };
            json!({"owner": self.owner(owner), "weight": weight})
        };
        json!({"holds": holds.iter().map(hold).collect::<Vec<_>>()})
    }
}

impl TellState<Option<(u32, u32)>> for Locks {
    fn state(&self, held: &Option<(u32, u32)>) -> Json {
        json!({"holds": held.iter().map(|h| self.hold(*h)).collect::<Vec<_>>()})
    }
}

impl TellState<Fenced> for Locks {
    /// `exact: false`: nobody learned the last fence; it is this or higher.
    fn state(&self, s: &Fenced) -> Json {
        let holds: Vec<Json> = s.holder.iter().map(|h| self.hold(*h)).collect();
        json!({"holds": holds, "fence": s.last, "exact": s.exact})
    }
}

pub(crate) struct Registers {
    pub values: Values,
    pub fences: bool,
}

impl Tell<RegOp> for Registers {
    fn call(&self, op: &RegOp) -> String {
        let fence = if self.fences && op.call != RegCall::Read {
            format!(" with fence {}", op.fence)
        } else {
            String::new()
        };
        match op.call {
            RegCall::Read => "read".into(),
            RegCall::Write => format!("write {}{fence}", self.values.name(op.a)),
            RegCall::Cas => format!(
                "compare-and-set {} to {}{fence}",
                self.values.name(op.a),
                self.values.name(op.b)
            ),
        }
    }

    fn answer(&self, op: &RegOp) -> String {
        match (op.call, op.took) {
            (_, Took::Unknown) => "unknown".into(),
            (RegCall::Read, Took::Yes) => format!("read {}", self.values.name(op.a)),
            (RegCall::Cas, Took::No) => "mismatch".into(),
            (_, Took::No) => "rejected".into(),
            (_, Took::Yes) => "ok".into(),
        }
    }
}

impl Registers {
    fn value(&self, value: u32) -> Json {
        self.values.get(value).map_or(Json::Null, plain)
    }
}

impl TellState<u32> for Registers {
    fn state(&self, value: &u32) -> Json {
        self.value(*value)
    }
}

impl TellState<(u32, u64)> for Registers {
    fn state(&self, (value, fence): &(u32, u64)) -> Json {
        json!({"value": self.value(*value), "fence": fence})
    }
}

/// Texts by key; no keys where each is checked by itself.
pub(crate) struct Strings {
    pub keys: Vec<String>,
    pub initial: Arc<str>,
}

type Texts = SmallVec<[(u32, Option<Arc<str>>); 1]>;

impl TellState<Texts> for Strings {
    /// Null: some text that no read to come shows.
    fn state(&self, texts: &Texts) -> Json {
        let text = |t: &Option<Arc<str>>| t.as_deref().map_or(Json::Null, Json::from);
        if self.keys.is_empty() {
            return texts
                .first()
                .map_or_else(|| (&*self.initial).into(), |e| text(&e.1));
        }
        let named = texts
            .iter()
            .filter_map(|(key, t)| Some((self.keys.get(*key as usize)?.clone(), text(t))));
        Json::Object(named.collect())
    }
}

impl Strings {
    fn of(&self, op: &KvOp) -> String {
        let key = self.keys.get(op.key as usize);
        key.map(|k| format!(" {k}")).unwrap_or_default()
    }
}

fn short(text: &str) -> String {
    let n = text.chars().count();
    if n <= 60 {
        return format!("{text:?}");
    }
    let tail: String = text.chars().skip(n - 50).collect();
    format!("…{tail:?} ({n} characters)")
}

impl Tell<KvOp> for Strings {
    fn call(&self, op: &KvOp) -> String {
        match (op.call, &op.text) {
            (KvCall::Put, Some(t)) => format!("put{} {}", self.of(op), short(t)),
            (KvCall::Append, Some(t)) => format!("append{} {}", self.of(op), short(t)),
            _ => format!("get{}", self.of(op)),
        }
    }

    fn answer(&self, op: &KvOp) -> String {
        match (op.call, &op.text) {
            (KvCall::Get, Some(t)) => format!("got {}", short(t)),
            (KvCall::Get, None) => "unknown".into(),
            _ => "ok".into(),
        }
    }
}

pub(crate) struct Txns {
    pub values: Values,
    pub registers: Values,
}

impl TellState<Vec<u32>> for Txns {
    fn state(&self, all: &Vec<u32>) -> Json {
        let named = (0..).zip(all).map(|(register, value)| {
            let name = self
                .registers
                .get(register)
                .map_or_else(|| register.to_string(), text_of);
            (name, self.values.get(*value).map_or(Json::Null, plain))
        });
        Json::Object(named.collect())
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| show(value), str::to_owned)
}

impl Tell<Txn> for Txns {
    fn call(&self, op: &Txn) -> String {
        let micro = op.iter().map(|m| {
            let value = m.value.map_or_else(|| "?".into(), |v| self.values.name(v));
            let register = self.registers.name(m.register);
            if m.write {
                format!("write {register} {value}")
            } else {
                format!("read {register} {value}")
            }
        });
        format!("transaction [{}]", micro.collect::<Vec<_>>().join(", "))
    }

    fn answer(&self, _: &Txn) -> String {
        "ok".into()
    }
}

/// Elements of queues and sets.
pub(crate) struct Elements(pub Values);

impl TellState<Vec<u32>> for Elements {
    fn state(&self, all: &Vec<u32>) -> Json {
        let one = |v: &u32| self.0.get(*v).map_or(Json::Null, plain);
        Json::Array(all.iter().map(one).collect())
    }
}

impl Tell<QueueOp> for Elements {
    fn call(&self, op: &QueueOp) -> String {
        match op {
            QueueOp::Enqueue(v) => format!("enqueue {}", self.0.name(*v)),
            _ => "dequeue".into(),
        }
    }

    fn answer(&self, op: &QueueOp) -> String {
        match op {
            QueueOp::Enqueue(_) => "ok".into(),
            QueueOp::Dequeue(Some(v)) => format!("got {}", self.0.name(*v)),
            QueueOp::Dequeue(None) => "empty".into(),
            QueueOp::DequeueUnknown => "unknown".into(),
        }
    }
}

impl Tell<SetOp> for Elements {
    fn call(&self, op: &SetOp) -> String {
        match op {
            SetOp::Add(v) => format!("add {}", self.0.name(*v)),
            SetOp::Remove(v) => format!("remove {}", self.0.name(*v)),
            SetOp::Read(_) => "read".into(),
            SetOp::Contains(v, _) => format!("contains {}", self.0.name(*v)),
        }
    }

    fn answer(&self, op: &SetOp) -> String {
        match op {
            SetOp::Read(Some(all)) => {
                let shown: Vec<String> = all.iter().take(16).map(|v| self.0.name(*v)).collect();
                let more = if all.len() > 16 {
                    format!(", … {} in all", all.len())
                } else {
                    String::new()
                };
                format!("read {{{}{more}}}", shown.join(", "))
            }
            SetOp::Contains(_, Some(is)) => is.to_string(),
            _ => "ok".into(),
        }
    }
}
