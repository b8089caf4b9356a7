//! Tries every order of a dozen operations. Own pairing and own specifications: it shares nothing with the checker.

use std::collections::{HashMap, HashSet};

use fencepost_history::{Event, EventType, Process, Value};

/// One operation as its events say.
#[derive(Clone, Debug)]
pub struct Op {
    pub call: u64,
    /// `None`: nobody learned the outcome.
    pub ret: Option<u64>,
    pub f: String,
    pub asked: Value,
    pub answer: Value,
    pub failed: bool,
}

pub fn operations(events: &[Event]) -> Vec<Op> {
    let mut open: HashMap<u64, usize> = HashMap::new();
    let mut ops: Vec<Op> = Vec::new();
    for e in events {
        let Process::Client(p) = e.process else {
            continue;
        };
        if e.kind == EventType::Invoke {
            open.insert(p, ops.len());
            ops.push(Op {
                call: e.index,
                ret: None,
                f: e.f.to_string(),
                asked: e.value.clone(),
                answer: Value::Null,
                failed: false,
            });
        } else if let Some(i) = open.remove(&p) {
            ops[i].ret = Some(e.index);
            ops[i].answer = e.value.clone();
            ops[i].failed = e.kind == EventType::Fail;
        }
    }
    ops
}

/// What an object is like.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Permits of a lock; 0: a register.
    pub permits: i128,
    pub owners: bool,
    pub fences: bool,
    pub leased: bool,
}

/// Holds as (owner, weight), and the least fence that the next grant can have; or a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    holds: Vec<(i128, i128)>,
    fence: i128,
    value: i128,
}

fn int(v: &Value, name: &str) -> Option<i128> {
    match v.get(name)? {
        Value::Int(i) => Some(*i),
        _ => None,
    }
}

fn number(v: &Value) -> i128 {
    match v {
        Value::Int(i) => *i,
        _ => 0,
    }
}

impl Spec {
    /// State after `op`, or `None` where its answer is not possible.
    fn step(&self, s: &State, op: &Op) -> Option<State> {
        if self.permits == 0 {
            return self.register(s, op);
        }
        let owner = match self.owners {
            true => int(&op.asked, "owner").unwrap_or(0),
            false => 0,
        };
        let mut next = s.clone();
        let mine = s.holds.iter().position(|h| h.0 == owner);
        let held = op.answer.get("held").and_then(Value::as_bool);
        match (op.f.as_str(), op.ret) {
            ("acquire", Some(_)) if op.failed => {
                return (!s.holds.is_empty() || self.leased).then_some(next);
            }
            ("acquire", known) => {
                let weight = int(&op.asked, "weight").unwrap_or(1);
                if self.leased {
                    next.holds.clear();
                }
                let taken: i128 = next.holds.iter().map(|h| h.1).sum();
                let again = self.owners && next.holds.iter().any(|h| h.0 == owner);
                if taken + weight > self.permits || again {
                    return None;
                }
                next.holds.push((owner, weight));
                next.holds.sort_unstable();
                if self.fences {
                    next.fence = match known {
                        Some(_) => int(&op.answer, "fence").filter(|f| *f >= s.fence)? + 1,
                        None => s.fence + 1,
                    };
                }
            }
            ("release", Some(_)) if held == Some(false) => match mine {
                Some(_) if self.owners && !self.leased => return None,
                Some(at) if self.owners => drop(next.holds.remove(at)),
                _ => {}
            },
            ("release", known) => match mine {
                Some(at) => drop(next.holds.remove(at)),
                None if known.is_some() => return None,
                None => {}
            },
            (_, Some(_)) => {
                let is = !s.holds.is_empty();
                return (self.leased || held == Some(is)).then_some(next);
            }
            _ => {}
        }
        Some(next)
    }

    fn register(&self, s: &State, op: &Op) -> Option<State> {
        let mut next = s.clone();
        match (op.f.as_str(), &op.asked) {
            ("read", _) => {
                return (op.ret.is_none() || number(&op.answer) == s.value).then_some(next);
            }
            ("cas", Value::List(pair)) => {
                let fits = number(&pair[0]) == s.value;
                if op.ret.is_some() && fits == op.failed {
                    return None;
                }
                if fits {
                    next.value = number(&pair[1]);
                }
            }
            (_, v) => next.value = number(v),
        }
        Some(next)
    }

    pub fn legal(&self, ops: &[Op]) -> bool {
        let known = |i: &usize| ops[*i].ret.is_some();
        let all: u64 = (0..ops.len()).filter(known).map(|i| 1 << i).sum();
        let mut seen = HashSet::new();
        let mut todo = vec![(0u64, State::default())];
        while let Some((done, state)) = todo.pop() {
            if done & all == all {
                return true;
            }
            let left: Vec<usize> = (0..ops.len()).filter(|i| done >> i & 1 == 0).collect();
            let first = left.iter().filter_map(|&i| ops[i].ret).min();
            for &i in &left {
                if first.is_some_and(|r| ops[i].call > r) {
                    continue;
                }
                if let Some(next) = self.step(&state, &ops[i]) {
                    let at = (done | 1 << i, next);
                    if seen.insert(at.clone()) {
                        todo.push(at);
                    }
                }
            }
        }
        false
    }
}
