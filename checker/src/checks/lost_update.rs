//! An update is: read the whole value, work, write `{value, prev}` under one grant. Violated when two
//! acknowledged updates share a `prev`, or an acknowledged one is missing from the final chain or set.
//!
//! Of a register only the *tips* are kept: acknowledged values that no later acknowledged write (nor an
//! unknown one that surely applied) names as its `prev`. At the end the chain through the final value must
//! have covered them all, so whichever of two branches lost is seen by its tip.

use fencepost_history::{Event, EventType, Process, Value, names};
use hashbrown::HashMap;

use super::finding::{Findings, Otherwise, plural};
use super::track::{F, Op, Stamp, Tracker, What, value_hash};
use super::{Check, Cx, Entry, Finding, Results};
use crate::judge::facts::Facts;

pub const ENTRY: Entry = Entry {
    name: "lost-update",
    about: "two updates started from the same value, or an acknowledged one is missing at the end",
    new: |facts| Box::new(LostUpdate::new(facts, true)),
    live: Some(|facts| Box::new(LostUpdate::new(facts, false))),
};

/// Consumed `prev`s of one generation; two are kept. What is forgotten is still found by its tip, at the end: during a
/// run fewer are enough, since two updates from one value are mostly close together.
const CONSUMED: usize = 1 << 19;
const CONSUMED_LIVE: usize = 1 << 16;

#[derive(Clone, Copy, Debug)]
enum Who {
    Worker(u32),
    Process(u64),
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Who::Worker(w) => write!(f, "worker {w}"),
            Who::Process(p) => write!(f, "process {p}"),
        }
    }
}

#[derive(Clone)]
struct Update {
    invoke: Stamp,
    done: Stamp,
    who: Who,
    fence: Option<u64>,
}

/// A write that has not been acknowledged: `prev`, and whether a later write shows that it applied.
struct Afloat {
    prev: u64,
    covered: bool,
}

#[derive(Default)]
struct Register {
    tips: HashMap<u64, Update>,
    afloat: HashMap<u64, Afloat>,
}

struct Last {
    at: Stamp,
    value: Value,
    set: Option<Vec<u64>>,
}

type Consumed = HashMap<(u32, u64), Update, foldhash::fast::FixedState>;

#[derive(Default)]
struct LostUpdate {
    /// The store was under a fault: nothing is certain.
    silent: bool,
    /// The end will be seen, so what must be there is remembered.
    to_the_end: bool,
    /// Updates that share a `prev`: the better story.
    findings: Findings,
    gone: Findings,
    registers: HashMap<u32, Register>,
    /// Who first updated from this value.
    young: Consumed,
    old: Consumed,
    /// Acknowledged elements, a set: hash, invocation and answer.
    elements: HashMap<u32, Vec<(u64, Stamp, Stamp)>>,
    last: HashMap<u32, Last>,
    updates: u64,
}

impl LostUpdate {
    fn new(facts: &Facts, to_the_end: bool) -> LostUpdate {
        LostUpdate {
            silent: facts.store.faulted,
            to_the_end,
            ..LostUpdate::default()
        }
    }

    fn acknowledged(&mut self, op: &Op, done: Stamp) {
        self.updates += 1;
        let update = Update {
            invoke: op.invoke,
            done,
            who: op.worker.map_or(Who::Process(op.process), Who::Worker),
            fence: op.fence,
        };
        let (value, prev) = (value_hash(&op.value), value_hash(&op.prev));
        let slot = (op.key, prev);
        match self.young.get(&slot).or_else(|| self.old.get(&slot)) {
            Some(first) => self.findings.add(shared(op, first, &update)),
            None => {
                let room = if self.to_the_end {
                    CONSUMED
                } else {
                    CONSUMED_LIVE
                };
                if self.young.len() >= room {
                    self.old = std::mem::take(&mut self.young);
                }
                self.young.insert(slot, update.clone());
            }
        }
        if !self.to_the_end {
            return;
        }
        let register = self.registers.entry(op.key).or_default();
        register.cover(prev);
        let covered = register.afloat.remove(&value).is_some_and(|a| a.covered);
        if !covered {
            register.tips.insert(value, update);
        }
    }

    fn final_read(&mut self, key: u32, v: &Value, at: Stamp) {
        let set = match v.get("set") {
            Some(Value::List(items)) => Some(items.iter().map(value_hash).collect()),
            _ => None,
        };
        let value = v.get("value").cloned().unwrap_or_default();
        self.last.insert(key, Last { at, value, set });
    }

    fn missing(&mut self, track: &Tracker) {
        let last = std::mem::take(&mut self.last);
        for (key, end) in &last {
            let name = track.key_name(*key);
            if let Some(register) = self.registers.get_mut(key) {
                register.cover(value_hash(&end.value));
                for tip in register.tips.values() {
                    self.gone.add(gone(name, tip, end.at));
                }
            }
            let (Some(set), Some(added)) = (&end.set, self.elements.get(key)) else {
                continue;
            };
            let set: hashbrown::HashSet<u64> = set.iter().copied().collect();
            for (_, invoke, done) in added.iter().filter(|(e, ..)| !set.contains(e)) {
                let f = Finding::new(format!(
                    "an acknowledged element of {name} is missing at the end"
                ))
                .cite(*invoke)
                .tell(*done, "an add is acknowledged")
                .tell(end.at, "the final set lacks its element");
                self.gone.add(f);
            }
        }
        self.last = last;
    }
}

impl Register {
    /// A later write was made from `value`, or it is the final one: it applied, and so did what it was
    /// made from.
    fn cover(&mut self, mut value: u64) {
        loop {
            self.tips.remove(&value);
            match self.afloat.get_mut(&value) {
                Some(a) if !a.covered => {
                    a.covered = true;
                    value = a.prev;
                }
                _ => return,
            }
        }
    }
}

fn words(u: &Update) -> String {
    u.fence.map(|f| format!(", fence {f}")).unwrap_or_default()
}

fn shared(op: &Op, a: &Update, b: &Update) -> Finding {
    let mut prev = Vec::new();
    fencepost_history::json::write_value(&mut prev, &op.prev);
    let prev = String::from_utf8_lossy(&prev).into_owned();
    Finding::new(format!(
        "two acknowledged updates of {} were both made from {prev}: one is lost",
        op.name
    ))
    .tell(
        a.invoke,
        format!("{}{} writes, having read {prev}", a.who, words(a)),
    )
    .tell(a.done, "it is acknowledged")
    .tell(
        b.invoke,
        format!("{}{} writes, having read {prev} too", b.who, words(b)),
    )
    .tell(b.done, "it is acknowledged, and undoes the other")
}

fn gone(name: &str, u: &Update, at: Stamp) -> Finding {
    Finding::new(format!(
        "an acknowledged update of {name} is missing from the final chain"
    ))
    .tell(u.invoke, format!("{}{} writes", u.who, words(u)))
    .tell(u.done, "it is acknowledged")
    .tell(at, "the final value does not rest on it")
}

/// The controller's own final read, where it is recorded as an event of its own.
fn own_final(e: &Event) -> bool {
    matches!(e.process, Process::Named(_))
        && &*e.f == names::READ
        && (e.value.get("final").is_some() || e.value.get("set").is_some())
}

impl Check for LostUpdate {
    fn event(&mut self, cx: &Cx<'_>) {
        match &cx.seen.what {
            What::Invoked(p) => {
                if let Some(op) = cx.track.open(*p)
                    && self.to_the_end
                    && op.f == F::Write
                {
                    let (value, prev) = (value_hash(&op.value), value_hash(&op.prev));
                    let covered = false;
                    self.registers
                        .entry(op.key)
                        .or_default()
                        .afloat
                        .insert(value, Afloat { prev, covered });
                }
            }
            What::Done(op, kind) => match (op.f, kind) {
                (F::Write, EventType::Ok) => self.acknowledged(op, cx.seen.now),
                (F::Write, EventType::Fail) => {
                    if let Some(r) = self.registers.get_mut(&op.key) {
                        r.afloat.remove(&value_hash(&op.value));
                    }
                }
                (F::Add, EventType::Ok) => {
                    self.updates += 1;
                    if !self.to_the_end {
                        return;
                    }
                    let added = self.elements.entry(op.key).or_default();
                    added.push((value_hash(&op.value), op.invoke, cx.seen.now));
                }
                (F::Read, EventType::Ok) if op.last => {
                    self.final_read(op.key, &cx.event.value, cx.seen.now);
                }
                _ => {}
            },
            _ if own_final(cx.event) => {
                let name = cx.event.key.as_deref().unwrap_or_default();
                if let Some(key) = cx.track.find_key(name) {
                    self.final_read(key, &cx.event.value, cx.seen.now);
                }
            }
            _ => {}
        }
    }

    fn certain(&self) -> u64 {
        if self.silent { 0 } else { self.findings.count }
    }

    fn tell(&self, _: &Tracker) -> Vec<(&'static str, Finding)> {
        self.findings.told(ENTRY.name)
    }

    fn finish(mut self: Box<Self>, _: &Facts, track: &Tracker, out: &mut Results) {
        if self.silent {
            let result = super::finding::unknown("the store itself was under a fault");
            out.insert(ENTRY.name.into(), result);
            return;
        }
        self.missing(track);
        let unread = self
            .registers
            .keys()
            .chain(self.elements.keys())
            .filter(|k| !self.last.contains_key(*k))
            .count();
        let otherwise = if self.updates == 0 {
            Otherwise::Unknown("no update was acknowledged".into())
        } else if unread > 0 {
            Otherwise::Unknown("no final read: an update may be missing at the end".into())
        } else {
            Otherwise::Holds(format!(
                "{}, each made from the one before, all there at the end",
                plural(self.updates, "acknowledged update")
            ))
        };
        let (findings, gone) = (self.findings, self.gone);
        let count = findings.count + gone.count;
        let best = if findings.is_empty() { gone } else { findings };
        let mut result = best.conclude(self.updates, otherwise);
        result.count = count;
        out.insert(ENTRY.name.into(), result);
    }
}
