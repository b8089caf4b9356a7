//! A small JSON-like value that keeps integers exact at 64 bits.

use std::sync::Arc;

/// Value of an event. Integers are exact over the union of `i64` and `u64`;
/// maps keep the order of the file.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Arc<str>),
    List(Vec<Value>),
    Map(Vec<(Arc<str>, Value)>),
}

impl Value {
    /// Member of a map; `None` for other kinds and for absent names.
    pub fn get(&self, name: &str) -> Option<&Value> {
        match self {
            Value::Map(m) => m.iter().find(|(k, _)| &**k == name).map(|(_, v)| v),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Str(s) => Some(s),
            _ => None,
        }
    }

    /// Integer in the `u64` range, from a number or a decimal string (the two
    /// ways in which fences may be written).
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Value::Int(i) => u64::try_from(*i).ok(),
            Value::Str(s) => s.parse().ok(),
            _ => None,
        }
    }

    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Int(i) => i64::try_from(*i).ok(),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(b) => Some(*b),
            _ => None,
        }
    }
}
