//! The witness's rules, without I/O: what is accepted, and the log of it.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use super::wire::{Ask, Told, Verb, put};
use crate::protocol::{Fence, Item};

/// What a witness checks.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Refuse a fence below the highest accepted.
    pub fenced: bool,
    /// Check reads too, and let an accepted one raise the highest fence.
    /// Without it a delayed write can land between another's read and write.
    pub raise_on_read: bool,
}

#[derive(Default)]
struct Slot {
    value: Option<Item>,
    set: Vec<Item>,
    highest: Option<Fence>,
}

/// Everything that a witness knows.
pub struct State {
    rules: Rules,
    slots: HashMap<Arc<str>, Slot>,
    seq: u64,
}

/// One line of `store.jsonl`. Fields are written even when null.
#[derive(Serialize)]
struct Line<'a> {
    seq: u64,
    time: u64,
    op: &'static str,
    key: &'a str,
    fence: Option<Fence>,
    owner: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Option<&'a Item>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prev: Option<Option<&'a Item>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    element: Option<&'a Item>,
    accepted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    highest: Option<Fence>,
}

impl State {
    pub fn new(rules: Rules) -> Self {
        State {
            rules,
            slots: HashMap::new(),
            seq: 0,
        }
    }

    /// Applies one request at the store's time `now` (ns) and appends its log
    /// line to `log`. Malformed requests change and log nothing.
    pub fn apply(&mut self, ask: &Ask, now: u64, log: &mut Vec<u8>) -> Told {
        if let Some(lack) = lack(ask) {
            let error = Some(format!("{:?} lacks \"{lack}\"", ask.op));
            return Told {
                id: ask.id,
                error,
                ..Told::default()
            };
        }
        let slot = self.slots.entry(ask.key.clone()).or_default();
        if ask.op == Verb::Final {
            let (value, set) = (slot.value.clone(), Some(slot.set.clone()));
            return Told {
                id: ask.id,
                ok: true,
                value,
                set,
                highest: slot.highest,
                error: None,
            };
        }
        let is_read = matches!(ask.op, Verb::Read | Verb::ReadSet);
        let exempt = is_read && !self.rules.raise_on_read;
        let accepted =
            !self.rules.fenced || exempt || ask.fence.is_none() || ask.fence >= slot.highest;
        if accepted && !exempt {
            slot.highest = slot.highest.max(ask.fence);
        }
        let mut told = Told {
            id: ask.id,
            ok: accepted,
            ..Told::default()
        };
        if accepted {
            match ask.op {
                Verb::Read => told.value = slot.value.clone(),
                Verb::ReadSet => told.set = Some(slot.set.clone()),
                Verb::Write => slot.value = ask.value.clone(),
                Verb::Add => slot.set = ask.set.clone().unwrap_or_default(),
                Verb::Final => {}
            }
        } else {
            told.error = Some("stale-fence".into());
        }
        told.highest = slot.highest;
        self.seq += 1;
        let line = Line {
            seq: self.seq,
            time: now,
            op: op_word(ask.op),
            key: &ask.key,
            fence: ask.fence,
            owner: ask.owner.as_deref(),
            value: match ask.op {
                Verb::Write => Some(ask.value.as_ref()),
                Verb::Read => Some(told.value.as_ref()),
                _ => None,
            },
            prev: (ask.op == Verb::Write).then_some(ask.prev.as_ref()),
            element: ask.element.as_ref(),
            accepted,
            reason: (!accepted).then_some("stale-fence"),
            highest: slot.highest,
        };
        put(&line, log);
        told
    }
}

fn op_word(verb: Verb) -> &'static str {
    match verb {
        Verb::Write => "write",
        Verb::Add => "add",
        Verb::Read | Verb::ReadSet | Verb::Final => "read",
    }
}

fn lack(ask: &Ask) -> Option<&'static str> {
    match ask.op {
        Verb::Write => ask.value.is_none().then_some("value"),
        Verb::Add if ask.element.is_none() => Some("element"),
        Verb::Add if ask.set.is_none() => Some("set"),
        _ => None,
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
