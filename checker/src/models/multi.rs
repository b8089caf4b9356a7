//! Several registers, read and written by transactions.

use fencepost_history::{Event, EventType, Value};

use super::values::{Values, show};
use crate::model::Model;
use crate::pair::Family;

/// One micro-operation; `value` `None` is a read that says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Micro {
    pub write: bool,
    pub register: u32,
    pub value: Option<u32>,
}

/// A transaction takes effect as one.
pub type Txn = Vec<Micro>;

pub struct MultiRegister {
    /// Initial value of each register, by number; beyond its end, `other`.
    pub initial: Vec<u32>,
    pub other: u32,
}

impl Model for MultiRegister {
    type Op = Txn;
    type State = Vec<u32>;

    fn initial(&self) -> Vec<u32> {
        self.initial.clone()
    }

    fn step(&self, state: &Vec<u32>, txn: &Txn) -> Option<Vec<u32>> {
        let mut next = state.clone();
        for m in txn {
            let i = m.register as usize;
            if i >= next.len() {
                next.resize(i + 1, self.other);
            }
            match (m.write, m.value) {
                (true, Some(v)) => next[i] = v,
                (false, Some(v)) if next[i] != v => return None,
                _ => {}
            }
        }
        // A state is written in one way only: no trailing untouched registers.
        while next.len() > self.initial.len() && next.last() == Some(&self.other) {
            next.pop();
        }
        Some(next)
    }

    fn is_read(&self, txn: &Txn) -> bool {
        txn.iter().all(|m| !m.write)
    }

    fn heap(&self, state: &Vec<u32>) -> usize {
        4 * state.capacity()
    }
}

pub(crate) struct MultiFamily {
    pub values: Values,
    pub registers: Values,
    /// Whether null is a value that registers can have.
    pub null_is_value: bool,
}

impl MultiFamily {
    /// `initial`: a map from register to value, or one value for all.
    pub fn new(initial: &Value) -> (Self, MultiRegister) {
        let (mut values, mut registers) = (Values::default(), Values::default());
        let mut start = Vec::new();
        let other = match initial {
            Value::Map(m) => {
                for (name, v) in m {
                    registers.intern(&Value::Str(name.clone()));
                    start.push(values.intern(v));
                }
                Value::Null
            }
            one => one.clone(),
        };
        let null_is_value = other == Value::Null && start.is_empty();
        let other = values.intern(&other);
        (
            MultiFamily {
                values,
                registers,
                null_is_value,
            },
            MultiRegister {
                initial: start,
                other,
            },
        )
    }

    fn micro(&mut self, value: &Value, answered: bool) -> Result<Micro, String> {
        let wrong = || {
            format!(
                "a micro-operation is [read|write, register, value], not {}",
                show(value)
            )
        };
        let Value::List(l) = value else {
            return Err(wrong());
        };
        let [f, register, v] = l.as_slice() else {
            return Err(wrong());
        };
        let write = match f.as_str().map(|s| s.trim_start_matches(':')) {
            Some("read" | "r") => false,
            Some("write" | "w") => true,
            _ => return Err(wrong()),
        };
        let says = write || answered && (*v != Value::Null || self.null_is_value);
        let register = match register {
            Value::Str(s) => self
                .registers
                .intern(&Value::Str(s.trim_start_matches(':').into())),
            other => self.registers.intern(&Value::Str(show(other).into())),
        };
        Ok(Micro {
            write,
            register,
            value: says.then(|| self.values.intern(v)),
        })
    }

    fn txn(&mut self, value: &Value, answered: bool) -> Result<Txn, String> {
        match value {
            Value::List(l) => l.iter().map(|m| self.micro(m, answered)).collect(),
            other => Err(format!(
                "a transaction is a list of micro-operations, not {}",
                show(other)
            )),
        }
    }
}

impl Family for MultiFamily {
    type Op = Txn;

    fn invoke(&mut self, event: &Event, _: u64) -> Result<Option<Txn>, String> {
        match &*event.f {
            "txn" => self.txn(&event.value, false).map(Some),
            _ => Ok(None),
        }
    }

    fn complete(&mut self, op: &mut Txn, event: &Event) -> Result<bool, String> {
        if event.kind == EventType::Ok {
            *op = self.txn(&event.value, true)?;
        }
        Ok(event.kind != EventType::Fail)
    }

    fn keep_unknown(&self, op: &Txn) -> bool {
        op.iter().any(|m| m.write)
    }
}
