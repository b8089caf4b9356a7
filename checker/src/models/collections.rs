//! First-in-first-out queue, and set.

use fencepost_history::{Event, EventType, Value};

use super::values::{Values, show};
use crate::model::Model;
use crate::pair::Family;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum QueueOp {
    Enqueue(u32),
    /// What came out; `None`: it was empty.
    Dequeue(Option<u32>),
    /// Takes the head, if there is one.
    DequeueUnknown,
}

pub struct Queue {
    pub initial: Vec<u32>,
}

impl Model for Queue {
    type Op = QueueOp;
    type State = Vec<u32>;

    fn initial(&self) -> Vec<u32> {
        self.initial.clone()
    }

    fn step(&self, state: &Vec<u32>, op: &QueueOp) -> Option<Vec<u32>> {
        match op {
            QueueOp::Enqueue(v) => {
                let mut next = Vec::with_capacity(state.len() + 1);
                next.extend_from_slice(state);
                next.push(*v);
                Some(next)
            }
            QueueOp::Dequeue(None) => state.is_empty().then(Vec::new),
            QueueOp::Dequeue(Some(v)) => (state.first() == Some(v)).then(|| state[1..].to_vec()),
            QueueOp::DequeueUnknown => Some(state.get(1..).unwrap_or_default().to_vec()),
        }
    }

    fn is_read(&self, op: &QueueOp) -> bool {
        *op == QueueOp::Dequeue(None)
    }

    fn heap(&self, state: &Vec<u32>) -> usize {
        4 * state.capacity()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SetOp {
    Add(u32),
    Remove(u32),
    /// Whole contents, sorted; `None`: it says nothing.
    Read(Option<Vec<u32>>),
    Contains(u32, Option<bool>),
}

pub struct Set {
    pub initial: Vec<u32>,
}

impl Model for Set {
    type Op = SetOp;
    /// Sorted.
    type State = Vec<u32>;

    fn initial(&self) -> Vec<u32> {
        let mut all = self.initial.clone();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn step(&self, state: &Vec<u32>, op: &SetOp) -> Option<Vec<u32>> {
        let change = |v: &u32, add: bool| {
            let mut next = state.clone();
            match (next.binary_search(v), add) {
                (Err(i), true) => next.insert(i, *v),
                (Ok(i), false) => drop(next.remove(i)),
                _ => {}
            }
            next
        };
        match op {
            SetOp::Add(v) => Some(change(v, true)),
            SetOp::Remove(v) => Some(change(v, false)),
            SetOp::Read(None) | SetOp::Contains(_, None) => Some(state.clone()),
            SetOp::Read(Some(all)) => (all == state).then(|| state.clone()),
            SetOp::Contains(v, Some(is)) => {
                (state.binary_search(v).is_ok() == *is).then(|| state.clone())
            }
        }
    }

    fn is_read(&self, op: &SetOp) -> bool {
        matches!(op, SetOp::Read(_) | SetOp::Contains(..))
    }

    fn total(&self, op: &SetOp) -> bool {
        matches!(op, SetOp::Add(_) | SetOp::Remove(_))
    }

    fn part(&self, _: &SetOp) -> Option<u32> {
        Some(0)
    }

    fn resets(&self, op: &SetOp, _: &SetOp) -> bool {
        matches!(op, SetOp::Remove(_))
    }

    /// Without removals, what a read does not list can not have been added.
    fn precludes(&self, state: &Vec<u32>, read: &SetOp) -> bool {
        match read {
            SetOp::Read(Some(all)) => state.iter().any(|v| all.binary_search(v).is_err()),
            SetOp::Contains(v, Some(false)) => state.binary_search(v).is_ok(),
            _ => false,
        }
    }

    fn heap(&self, state: &Vec<u32>) -> usize {
        4 * state.capacity()
    }
}

/// Initial contents from a list; null is empty.
pub(crate) fn contents(values: &mut Values, initial: &Value) -> Option<Vec<u32>> {
    match initial {
        Value::Null => Some(Vec::new()),
        Value::List(l) => Some(l.iter().map(|v| values.intern(v)).collect()),
        _ => None,
    }
}

#[derive(Default)]
pub(crate) struct QueueFamily {
    pub values: Values,
}

impl Family for QueueFamily {
    type Op = QueueOp;

    fn invoke(&mut self, event: &Event, _: u64) -> Result<Option<QueueOp>, String> {
        Ok(match &*event.f {
            "enqueue" => Some(QueueOp::Enqueue(self.values.intern(&event.value))),
            "dequeue" => Some(QueueOp::DequeueUnknown),
            _ => None,
        })
    }

    fn complete(&mut self, op: &mut QueueOp, event: &Event) -> Result<bool, String> {
        let dequeue = *op == QueueOp::DequeueUnknown;
        let empty = event
            .error
            .as_deref()
            .is_some_and(|e| e.trim_start_matches(':') == "empty");
        match (event.kind, dequeue) {
            (EventType::Ok, true) => {
                let out = (event.value != Value::Null).then(|| self.values.intern(&event.value));
                *op = QueueOp::Dequeue(out);
                Ok(true)
            }
            (EventType::Fail, true) => {
                *op = QueueOp::Dequeue(None);
                Ok(empty)
            }
            (kind, _) => Ok(kind != EventType::Fail),
        }
    }

    fn keep_unknown(&self, _: &QueueOp) -> bool {
        true
    }
}

#[derive(Default)]
pub(crate) struct SetFamily {
    pub values: Values,
}

impl Family for SetFamily {
    type Op = SetOp;

    fn invoke(&mut self, event: &Event, _: u64) -> Result<Option<SetOp>, String> {
        let mut element = || {
            self.values
                .intern(event.value.get("element").unwrap_or(&event.value))
        };
        Ok(match &*event.f {
            "add" => Some(SetOp::Add(element())),
            "remove" => Some(SetOp::Remove(element())),
            "contains" => Some(SetOp::Contains(element(), None)),
            "read" => Some(SetOp::Read(None)),
            _ => None,
        })
    }

    fn complete(&mut self, op: &mut SetOp, event: &Event) -> Result<bool, String> {
        match (event.kind, op) {
            (EventType::Ok, SetOp::Read(all)) => {
                let Value::List(l) = event.value.get("set").unwrap_or(&event.value) else {
                    return Err(format!(
                        "a read of a set answers a list, not {}",
                        show(&event.value)
                    ));
                };
                let mut read: Vec<u32> = l.iter().map(|v| self.values.intern(v)).collect();
                read.sort_unstable();
                read.dedup();
                *all = Some(read);
                Ok(true)
            }
            (EventType::Ok, SetOp::Contains(_, is)) => {
                *is = event.value.as_bool();
                Ok(is.is_some())
            }
            (kind, _) => Ok(kind != EventType::Fail),
        }
    }

    fn keep_unknown(&self, op: &SetOp) -> bool {
        matches!(op, SetOp::Add(_) | SetOp::Remove(_))
    }
}
