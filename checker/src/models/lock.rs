//! Operations of every kind of lock, and how events spell them.

use std::sync::Arc;

use fencepost_history::{Event, EventType, Value};
use hashbrown::HashMap;

use crate::pair::Family;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockCall {
    Acquire,
    Release,
    /// Asks whether anybody holds the lock.
    Held,
}

/// What the service said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Granted; was held by that owner and is free now; somebody holds it.
    Yes,
    /// Busy; that owner did not hold it; nobody holds it.
    No,
    Unknown,
}

/// One call on a lock. What a model does not look at is 0 or `None`, so that
/// calls that are the same to it are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockOp {
    pub fence: Option<u64>,
    pub owner: u32,
    /// Permits taken.
    pub weight: u32,
    pub call: LockCall,
    pub answer: Answer,
}

/// What a lock model looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockView {
    pub owners: bool,
    pub fences: bool,
    /// Releases say which fence they mean.
    pub named_releases: bool,
    /// Weight of an exclusive grant.
    pub exclusive: u32,
    /// Weight of a shared grant; `None` where modes do not matter.
    pub shared: Option<u32>,
    /// Take `weight` from the invocation.
    pub weights: bool,
    pub busy_counts: bool,
}

#[derive(PartialEq, Eq, Hash)]
enum Name {
    Int(i128),
    Str(Arc<str>),
    Process(u64),
}

/// Decodes acquire, release and held.
pub(crate) struct LockFamily {
    view: LockView,
    owners: HashMap<Name, u32, foldhash::fast::RandomState>,
    /// Acquires that named no owner, so that the process stood for it.
    pub ownerless: u64,
}

impl LockFamily {
    pub fn new(view: LockView) -> Self {
        LockFamily {
            view,
            owners: HashMap::default(),
            ownerless: 0,
        }
    }

    fn intern(&mut self, name: Name) -> u32 {
        let next = self.owners.len() as u32;
        *self.owners.entry(name).or_insert(next)
    }

    fn owner(&mut self, value: &Value) -> Option<u32> {
        let name = match value.get("owner")? {
            Value::Int(i) => Name::Int(*i),
            Value::Str(s) => Name::Str(s.clone()),
            _ => return None,
        };
        Some(self.intern(name))
    }

    /// Names of owners by number, for stories.
    pub fn names(&self) -> Vec<String> {
        let mut names = vec![String::new(); self.owners.len()];
        for (name, &i) in &self.owners {
            names[i as usize] = match name {
                Name::Int(n) => n.to_string(),
                Name::Str(s) => s.to_string(),
                Name::Process(p) => format!("process {p}"),
            };
        }
        names
    }

    fn weight(&self, value: &Value) -> Result<u32, String> {
        let v = &self.view;
        if v.weights {
            return match value.get("weight") {
                None => Ok(v.exclusive),
                Some(w) => w
                    .as_u64()
                    .and_then(|w| u32::try_from(w).ok())
                    .filter(|w| *w > 0)
                    .ok_or_else(|| "weight is not a positive 32-bit number".to_string()),
            };
        }
        let shared = value.get("mode").and_then(Value::as_str) == Some("shared");
        Ok(v.shared.filter(|_| shared).unwrap_or(v.exclusive))
    }
}

fn flag(value: &Value, names: &[&str]) -> Option<bool> {
    value
        .as_bool()
        .or_else(|| names.iter().find_map(|n| value.get(n)?.as_bool()))
}

fn error_is(event: &Event, words: &[&str]) -> bool {
    event
        .error
        .as_deref()
        .is_some_and(|e| words.contains(&e.trim_start_matches(':')))
}

impl Family for LockFamily {
    type Op = LockOp;

    fn invoke(&mut self, event: &Event, process: u64) -> Result<Option<LockOp>, String> {
        let call = match &*event.f {
            "acquire" | "lock" | "try-acquire" | "try-lock" => LockCall::Acquire,
            "release" | "unlock" => LockCall::Release,
            "held" | "locked" => LockCall::Held,
            _ => return Ok(None),
        };
        let owner = match self.view.owners && call != LockCall::Held {
            true => match self.owner(&event.value) {
                Some(o) => o,
                None => self.intern(Name::Process(process)),
            },
            false => 0,
        };
        let fence = match (call, self.view.named_releases) {
            (LockCall::Release, true) => event.value.get("fence").and_then(Value::as_u64),
            _ => None,
        };
        let weight = if call == LockCall::Acquire {
            self.weight(&event.value)?
        } else {
            0
        };
        Ok(Some(LockOp {
            fence,
            owner,
            weight,
            call,
            answer: Answer::Unknown,
        }))
    }

    fn complete(&mut self, op: &mut LockOp, event: &Event) -> Result<bool, String> {
        match (event.kind, op.call) {
            (EventType::Info, _) => {}
            (EventType::Ok, LockCall::Acquire) => {
                op.answer = Answer::Yes;
                if self.view.owners {
                    match self.owner(&event.value) {
                        Some(o) => op.owner = o,
                        None if !matches!(event.value, Value::Map(_)) => self.ownerless += 1,
                        None => {}
                    }
                }
                if self.view.fences {
                    op.fence = event.value.get("fence").and_then(Value::as_u64);
                    if op.fence.is_none() {
                        return Err("a grant without a fence: use a model without fences".into());
                    }
                }
            }
            (EventType::Ok, LockCall::Release) => {
                let held = flag(&event.value, &["held", "released"]).unwrap_or(true);
                op.answer = if held { Answer::Yes } else { Answer::No };
                return Ok(held || self.view.owners);
            }
            (EventType::Ok, LockCall::Held) => match flag(&event.value, &["held", "locked"]) {
                Some(true) => op.answer = Answer::Yes,
                Some(false) => op.answer = Answer::No,
                None => return Ok(false),
            },
            (_, LockCall::Acquire) => {
                op.answer = Answer::No;
                return Ok(self.view.busy_counts && error_is(event, &["busy", "held", "locked"]));
            }
            (_, LockCall::Release) => {
                op.answer = Answer::No;
                return Ok(self.view.owners && error_is(event, &["not-held", "not-owner"]));
            }
            (_, LockCall::Held) => return Ok(false),
        }
        Ok(true)
    }

    fn keep_unknown(&self, op: &LockOp) -> bool {
        op.call != LockCall::Held
    }
}
