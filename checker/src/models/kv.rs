//! Key-value store of strings with get, put and append.

use std::sync::Arc;

use fencepost_history::{Event, EventType, Value};
use hashbrown::HashMap;
use smallvec::SmallVec;

use super::values::show;
use crate::model::Model;
use crate::pair::Family;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvCall {
    Get,
    Put,
    Append,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KvOp {
    /// Number of the key; 0 where each key is checked by itself.
    pub key: u32,
    pub call: KvCall,
    /// What was put, appended or read; `None` for a read whose answer is unknown.
    pub text: Option<Arc<str>>,
}

/// Every key starts as `initial`.
pub struct Kv {
    pub initial: Arc<str>,
    /// There is one key only.
    pub single: bool,
}

impl Model for Kv {
    type Op = KvOp;
    /// Text of each key that was written, by number; `None` where no read to
    /// come can see it, so that only a put matters.
    type State = SmallVec<[(u32, Option<Arc<str>>); 1]>;

    fn initial(&self) -> Self::State {
        SmallVec::new()
    }

    fn step(&self, state: &Self::State, op: &KvOp) -> Option<Self::State> {
        let at = state.binary_search_by_key(&op.key, |e| e.0);
        let now = at.map_or(Some(&self.initial), |i| state[i].1.as_ref());
        let text = match (op.call, &op.text, now) {
            (_, None, _) => return Some(state.clone()),
            (KvCall::Get, text, now) => return (text.as_ref() == now).then(|| state.clone()),
            (KvCall::Put, Some(t), _) => Some(t.clone()),
            (KvCall::Append, _, None) => return Some(state.clone()),
            (KvCall::Append, Some(t), Some(now)) => Some([&**now, &**t].concat().into()),
        };
        let mut next = state.clone();
        match at {
            Ok(i) => next[i].1 = text,
            Err(i) => next.insert(i, (op.key, text)),
        }
        Some(next)
    }

    fn is_read(&self, op: &KvOp) -> bool {
        op.call == KvCall::Get
    }

    fn overwrites(&self, op: &KvOp) -> bool {
        self.single && op.call == KvCall::Put
    }

    fn total(&self, op: &KvOp) -> bool {
        op.call != KvCall::Get
    }

    fn part(&self, op: &KvOp) -> Option<u32> {
        Some(op.key)
    }

    /// What was read after a put begins with what was put.
    fn resets(&self, op: &KvOp, read: &KvOp) -> bool {
        let begins = |(t, p): (&Arc<str>, &Arc<str>)| t.starts_with(&**p);
        op.call == KvCall::Put && read.text.as_ref().zip(op.text.as_ref()).is_some_and(begins)
    }

    /// Appends only lengthen a text: what is no prefix of it now never will be.
    fn precludes(&self, state: &Self::State, read: &KvOp) -> bool {
        let at = state.binary_search_by_key(&read.key, |e| e.0);
        let now = at.map_or(Some(&self.initial), |i| state[i].1.as_ref());
        let begins = |t: &Arc<str>| now.is_some_and(|now| t.starts_with(&**now));
        read.call == KvCall::Get && read.text.as_ref().is_some_and(|t| !begins(t))
    }

    fn fade(&self, state: &Self::State, part: u32) -> Option<Self::State> {
        let mut next = state.clone();
        match next.binary_search_by_key(&part, |e| e.0) {
            Ok(i) => next[i].1 = None,
            Err(i) => next.insert(i, (part, None)),
        }
        Some(next)
    }

    fn heap(&self, state: &Self::State) -> usize {
        state
            .iter()
            .map(|e| e.1.as_ref().map_or(0, |t| t.len() + 16))
            .sum::<usize>()
            + if state.spilled() { 24 * state.len() } else { 0 }
    }
}

pub(crate) struct KvFamily {
    partition: bool,
    keys: HashMap<Option<Arc<str>>, u32>,
}

impl KvFamily {
    pub fn new(partition: bool) -> Self {
        KvFamily {
            partition,
            keys: HashMap::new(),
        }
    }

    /// Names of keys by number; none where each is checked by itself.
    pub fn names(&self) -> Vec<String> {
        let mut names = vec![String::new(); self.keys.len()];
        for (name, &i) in &self.keys {
            names[i as usize] = name.as_deref().unwrap_or_default().to_owned();
        }
        names
    }
}

pub(crate) fn text(value: &Value) -> Arc<str> {
    match value {
        Value::Str(s) => s.clone(),
        other => show(other).into(),
    }
}

impl Family for KvFamily {
    type Op = KvOp;

    fn invoke(&mut self, event: &Event, _: u64) -> Result<Option<KvOp>, String> {
        let call = match &*event.f {
            "get" | "read" => KvCall::Get,
            "put" | "write" => KvCall::Put,
            "append" => KvCall::Append,
            _ => return Ok(None),
        };
        let key = match self.partition {
            true => 0,
            false => {
                let next = self.keys.len() as u32;
                *self.keys.entry(event.key.clone()).or_insert(next)
            }
        };
        let given = (call != KvCall::Get).then(|| text(&event.value));
        Ok(Some(KvOp {
            key,
            call,
            text: given,
        }))
    }

    fn complete(&mut self, op: &mut KvOp, event: &Event) -> Result<bool, String> {
        if event.kind == EventType::Ok && op.call == KvCall::Get {
            op.text = Some(if event.value == Value::Null {
                "".into()
            } else {
                text(&event.value)
            });
        }
        Ok(event.kind != EventType::Fail)
    }

    fn keep_unknown(&self, op: &KvOp) -> bool {
        op.call != KvCall::Get
    }
}
