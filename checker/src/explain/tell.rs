//! Operations in words.

use crate::models::collections::{QueueOp, SetOp};
use crate::models::kv::{KvCall, KvOp};
use crate::models::lock::{Answer, LockCall, LockOp};
use crate::models::multi::Txn;
use crate::models::register::{RegCall, RegOp, Took};
use crate::models::values::Values;

/// Puts an operation and its answer into words.
pub(crate) trait Tell<O>: Sync {
    fn call(&self, op: &O) -> String;
    fn answer(&self, op: &O) -> String;
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

pub(crate) struct Strings;

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
            (KvCall::Put, Some(t)) => format!("put {}", short(t)),
            (KvCall::Append, Some(t)) => format!("append {}", short(t)),
            _ => "get".into(),
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
