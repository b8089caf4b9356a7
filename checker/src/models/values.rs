//! Values by number.

use fencepost_history::Value;
use hashbrown::HashMap;

#[derive(PartialEq, Eq, Hash)]
enum Key {
    Int(i128),
    /// Kind of value and its text, for everything else.
    Text(u8, String),
}

/// Numbers values so that equal ones have equal numbers.
#[derive(Default)]
pub(crate) struct Values {
    by_key: HashMap<Key, u32, foldhash::fast::RandomState>,
    names: Vec<Value>,
}

impl Values {
    pub fn intern(&mut self, value: &Value) -> u32 {
        let key = match value {
            Value::Int(i) => Key::Int(*i),
            Value::Str(s) => Key::Text(0, s.to_string()),
            other => Key::Text(1, show(other)),
        };
        let next = self.names.len() as u32;
        *self.by_key.entry(key).or_insert_with(|| {
            self.names.push(value.clone());
            next
        })
    }

    pub fn get(&self, number: u32) -> Option<&Value> {
        self.names.get(number as usize)
    }

    pub fn name(&self, number: u32) -> String {
        self.get(number).map_or_else(|| format!("#{number}"), show)
    }
}

/// A value as a person would read it.
pub(crate) fn show(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(b) => b.to_string(),
        Value::Int(i) => i.to_string(),
        Value::Float(f) => format!("{f:?}"),
        Value::Str(s) => format!("\"{s}\""),
        Value::List(l) => format!("[{}]", l.iter().map(show).collect::<Vec<_>>().join(", ")),
        Value::Map(m) => {
            let members: Vec<String> = m.iter().map(|(k, v)| format!("{k}: {}", show(v))).collect();
            format!("{{{}}}", members.join(", "))
        }
    }
}
