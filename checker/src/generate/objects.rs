//! Clients of key-value stores, queues and sets.

use std::sync::Arc;

use super::{Rng, Workload};
use crate::model::Model;
use crate::models::collections::{Queue, QueueOp, Set, SetOp};
use crate::models::kv::{Kv, KvCall, KvOp};

/// Get, put and append; texts of puts and appends are distinct.
pub struct KvClients {
    pub model: Kv,
    pub keys: u32,
    /// Percent of puts among the calls that are no gets.
    pub puts: u64,
    next: u64,
}

impl KvClients {
    pub fn new(keys: u32, puts: u64) -> Self {
        KvClients {
            model: Kv {
                initial: "".into(),
                single: keys == 1,
            },
            keys,
            puts,
            next: 0,
        }
    }
}

impl Workload for KvClients {
    type Model = Kv;

    fn model(&self) -> &Kv {
        &self.model
    }

    fn call(&mut self, client: u64, rng: &mut Rng) -> KvOp {
        let key = rng.below(u64::from(self.keys)) as u32;
        if rng.percent(45) {
            return KvOp {
                key,
                call: KvCall::Get,
                text: None,
            };
        }
        self.next += 1;
        let call = if rng.percent(self.puts) {
            KvCall::Put
        } else {
            KvCall::Append
        };
        // A few texts repeat, or begin another.
        let text = if rng.percent(20) {
            "x".into()
        } else {
            format!("x{client}.{} ", self.next)
        };
        KvOp {
            key,
            call,
            text: Some(text.into()),
        }
    }

    fn answers(&mut self, state: &<Kv as Model>::State, call: &KvOp, _: &mut Rng) -> Vec<KvOp> {
        if call.call != KvCall::Get {
            return vec![call.clone()];
        }
        let at = state.iter().find(|e| e.0 == call.key);
        let text: Arc<str> = at.and_then(|e| e.1.clone()).unwrap_or_else(|| "".into());
        vec![KvOp {
            text: Some(text),
            ..call.clone()
        }]
    }
}

/// Enqueue and dequeue.
pub struct QueueClients {
    pub model: Queue,
    next: u32,
}

impl QueueClients {
    pub fn new() -> Self {
        QueueClients {
            model: Queue {
                initial: Vec::new(),
            },
            next: 0,
        }
    }
}

impl Default for QueueClients {
    fn default() -> Self {
        Self::new()
    }
}

impl Workload for QueueClients {
    type Model = Queue;

    fn model(&self) -> &Queue {
        &self.model
    }

    fn call(&mut self, _: u64, rng: &mut Rng) -> QueueOp {
        if rng.percent(45) {
            return QueueOp::DequeueUnknown;
        }
        self.next += 1;
        QueueOp::Enqueue(self.next % 5)
    }

    fn answers(&mut self, state: &Vec<u32>, call: &QueueOp, _: &mut Rng) -> Vec<QueueOp> {
        match call {
            QueueOp::DequeueUnknown => vec![QueueOp::Dequeue(state.first().copied())],
            other => vec![other.clone()],
        }
    }
}

/// Add, remove (percent of calls), contains and read.
pub struct SetClients {
    pub model: Set,
    pub removes: u64,
}

impl SetClients {
    pub fn new(removes: u64) -> Self {
        SetClients {
            model: Set {
                initial: Vec::new(),
            },
            removes,
        }
    }
}

impl Workload for SetClients {
    type Model = Set;

    fn model(&self) -> &Set {
        &self.model
    }

    fn call(&mut self, _: u64, rng: &mut Rng) -> SetOp {
        let v = rng.below(6) as u32;
        match rng.below(100) {
            n if n < self.removes => SetOp::Remove(v),
            n if n < 55 => SetOp::Add(v),
            n if n < 70 => SetOp::Contains(v, None),
            _ => SetOp::Read(None),
        }
    }

    fn answers(&mut self, state: &Vec<u32>, call: &SetOp, _: &mut Rng) -> Vec<SetOp> {
        vec![match call {
            SetOp::Read(_) => SetOp::Read(Some(state.clone())),
            SetOp::Contains(v, _) => SetOp::Contains(*v, Some(state.contains(v))),
            other => other.clone(),
        }]
    }
}
