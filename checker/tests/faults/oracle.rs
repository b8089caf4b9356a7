//! Tries every order of a few operations. Own pairing and own specifications: it shares nothing with the checker.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

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

pub fn operations<'a>(events: impl IntoIterator<Item = &'a Event>) -> Vec<Op> {
    let mut open: Vec<(u64, usize)> = Vec::new();
    let mut ops: Vec<Op> = Vec::new();
    for e in events {
        let Process::Client(p) = e.process else {
            continue;
        };
        if e.kind == EventType::Invoke {
            open.push((p, ops.len()));
            ops.push(Op {
                call: e.index,
                ret: None,
                f: e.f.to_string(),
                asked: e.value.clone(),
                answer: Value::Null,
                failed: false,
            });
        } else if let Some(at) = open.iter().position(|o| o.0 == p) {
            let op = &mut ops[open.remove(at).1];
            if e.kind != EventType::Info {
                op.ret = Some(e.index);
                op.answer = e.value.clone();
                op.failed = e.kind == EventType::Fail;
            }
        }
    }
    ops
}

/// One line each.
pub fn show(ops: &[Op]) -> String {
    let text = |v: &Value| {
        let mut text = Vec::new();
        fencepost_history::json::write_value(&mut text, v);
        String::from_utf8_lossy(&text).into_owned()
    };
    let line = |o: &Op| {
        let ret = o.ret.map_or("never".to_owned(), |r| r.to_string());
        let failed = if o.failed { "failed" } else { "ok" };
        let (asked, answer) = (text(&o.asked), text(&o.answer));
        format!("[{}, {ret}] {} {asked} → {failed} {answer}", o.call, o.f)
    };
    ops.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// What an object is like.
pub trait Object {
    type State: Clone + Debug + Eq + Hash;

    fn start(&self) -> Self::State;

    /// States after `op`; none where its answer is not possible. `fences` are those that the history names.
    fn steps(&self, s: &Self::State, op: &Op, fences: &[i128]) -> Vec<Self::State>;

    /// States that an explanation's words for one stand for.
    fn told(&self, state: &serde_json::Value, fences: &[i128]) -> Vec<Self::State>;
}

pub fn int(v: &Value, name: &str) -> Option<i128> {
    match v.get(name)? {
        Value::Int(i) => Some(*i),
        _ => None,
    }
}

pub fn fences(ops: &[Op]) -> Vec<i128> {
    let named = |o: &Op| [int(&o.asked, "fence"), int(&o.answer, "fence")];
    ops.iter().flat_map(named).flatten().collect()
}

/// All states in which the known operations and some of the others leave the object, in any order that keeps
/// real time; with `first`, one is enough.
fn ends<O: Object>(o: &O, ops: &[Op], starts: &[O::State], first: bool) -> Vec<O::State> {
    let fences = fences(ops);
    let known = |i: &usize| ops[*i].ret.is_some();
    let all: u64 = (0..ops.len()).filter(known).map(|i| 1 << i).sum();
    let mut todo: Vec<(u64, O::State)> = starts.iter().map(|s| (0, s.clone())).collect();
    let mut seen: HashSet<(u64, O::State)> = todo.iter().cloned().collect();
    let mut found = Vec::new();
    while let Some((done, state)) = todo.pop() {
        if done & all == all {
            found.push(state.clone());
            if first {
                return found;
            }
        }
        let left: Vec<usize> = (0..ops.len()).filter(|i| done >> i & 1 == 0).collect();
        let before = left.iter().filter_map(|&i| ops[i].ret).min();
        for &i in &left {
            if before.is_some_and(|r| ops[i].call > r) {
                continue;
            }
            for next in o.steps(&state, &ops[i], &fences) {
                let at = (done | 1 << i, next);
                if seen.insert(at.clone()) {
                    todo.push(at);
                }
            }
        }
    }
    found
}

pub fn legal<O: Object>(o: &O, ops: &[Op], starts: &[O::State]) -> bool {
    !ends(o, ops, starts, true).is_empty()
}

/// States that the operations may leave the object in.
pub fn after<O: Object>(o: &O, ops: &[Op]) -> Vec<O::State> {
    ends(o, ops, &[o.start()], false)
}
