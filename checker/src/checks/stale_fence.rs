//! Per (lock, resource), exclusive mode: the store accepted an operation with a fence lower than one
//! that it had accepted before, in its own serial order. Without such an order: unknown, since real-time
//! order cannot see a write that was in flight.

use std::sync::Arc;

use hashbrown::HashMap;

use super::finding::{Findings, holds_if, plural};
use super::order::{Order, shortest_cycle};
use super::store_op::{ChangeId, StoreOp};
use super::track::{F, Grant, Mode, Stamp, Tracker, What, value_hash};
use super::{Check, Cx, Entry, Finding, Results};
use crate::judge::facts::Facts;
use crate::verdict::CheckResult;

pub const ENTRY: Entry = Entry {
    name: "stale-fence-accepted",
    about: "the store accepted a lower fence after a higher one",
    new: |facts| Box::new(StaleFence::new(facts)),
    live: Some(|facts| Box::new(StaleFence::new(facts))),
};

/// Violations that are looked up in the history; the rest are counted.
const TOLD: usize = 32;

/// An operation of the log, and what the history says of it.
#[derive(Clone)]
struct Line {
    seq: u64,
    f: F,
    fence: u64,
    change: ChangeId,
    grant: Option<Grant>,
    invoke: Option<Stamp>,
    done: Option<Stamp>,
}

#[derive(Clone)]
struct Pair {
    key: Arc<str>,
    high: Line,
    low: Line,
}

/// Key and resource.
type Slot = (Arc<str>, Option<Arc<str>>);

#[derive(Default)]
struct StaleFence {
    /// Why the log says nothing.
    silent: Option<&'static str>,
    highest: HashMap<Slot, Line>,
    /// As `highest`, of writes alone: a write makes the plainer story.
    written: HashMap<Slot, Line>,
    pairs: Vec<Pair>,
    count: u64,
    /// Operations with a superseded fence that reached the store.
    exercised: u64,
    lines: u64,
}

impl StaleFence {
    fn new(facts: &Facts) -> StaleFence {
        let mode = facts.mode.as_deref().map(Mode::of).unwrap_or_default();
        let silent = match (mode, facts.store.faulted) {
            (Mode::Exclusive, false) => None,
            (Mode::Exclusive, true) => Some("the store itself was under a fault"),
            _ => Some("not applicable: locks are not exclusive"),
        };
        StaleFence {
            silent,
            ..StaleFence::default()
        }
    }

    fn line(op: &StoreOp, fence: u64) -> Line {
        Line {
            seq: op.seq,
            f: op.f,
            fence,
            change: op.change(),
            grant: None,
            invoke: None,
            done: None,
        }
    }

    /// An operation below the highest fence reached the store.
    fn stale(&mut self, op: &StoreOp, slot: Slot, low: Line) {
        self.exercised += 1;
        if !op.accepted {
            return;
        }
        self.count += 1;
        let write = self.written.get(&slot).filter(|w| w.fence > low.fence);
        let high = write.or_else(|| self.highest.get(&slot)).cloned();
        if let Some(high) = high.filter(|_| self.pairs.len() < TOLD) {
            let key = slot.0;
            self.pairs.push(Pair { key, high, low });
        }
    }

    /// Finds the history's events for the operations in question.
    fn look_up(&mut self, cx: &Cx<'_>) {
        let granted = cx.seen.granted.and_then(|id| cx.track.grant(id));
        let done = match &cx.seen.what {
            What::Done(op, _) if matches!(op.f, F::Write | F::Add | F::Read) => Some(op),
            _ => None,
        };
        if granted.is_none() && done.is_none() {
            return;
        }
        for pair in &mut self.pairs {
            for line in [&mut pair.high, &mut pair.low] {
                if let Some(g) = granted
                    && g.fence == Some(line.fence)
                    && g.name == pair.key
                {
                    line.grant.get_or_insert_with(|| g.clone());
                }
                let Some(op) = done else { continue };
                let same = match op.f {
                    F::Read => line.f == F::Read && line.invoke.is_none(),
                    f => (f, value_hash(&op.value)) == line.change,
                };
                if same && op.fence == Some(line.fence) && op.name == pair.key {
                    line.invoke = Some(op.invoke);
                    line.done = Some(cx.seen.now);
                }
            }
        }
    }
}

fn verb(f: F) -> &'static str {
    match f {
        F::Read => "read",
        F::Add => "add",
        _ => "write",
    }
}

/// During a run the grant was there before the log's line.
fn granted(track: &Tracker, pair: &Pair, line: &Line) -> Option<Grant> {
    let key = track.find_key(&pair.key)?;
    track
        .grants_of(key)
        .find(|g| g.fence == Some(line.fence))
        .cloned()
}

fn story(pair: &Pair, track: &Tracker) -> Finding {
    let (high, low) = (&pair.high, &pair.low);
    let mut f = Finding::new(format!(
        "the store of {} accepted a {} with fence {} (seq {}) after a {} with fence {} (seq {})",
        pair.key,
        verb(low.f),
        low.fence,
        low.seq,
        verb(high.f),
        high.fence,
        high.seq
    ));
    let grant = |line: &Line| line.grant.clone().or_else(|| granted(track, pair, line));
    for line in [low, high] {
        if let Some(g) = &grant(line) {
            f = f.granted(g);
        }
        if let Some(invoke) = line.invoke {
            f = f.cite(invoke);
        }
    }
    if let Some(a) = &grant(low) {
        let fault = a.promised.and_then(|p| track.faults.across(a.worker, p));
        f = f.ran_out(a, fault);
    }
    // In the order of the store, which the stamps of the answers need not follow.
    for (line, words) in [(high, "is accepted"), (low, "is accepted after it")] {
        if let Some(done) = line.done {
            f = f.tell(
                done,
                format!("the {} with fence {} {words}", verb(line.f), line.fence),
            );
        }
    }
    f
}

impl Check for StaleFence {
    fn store(&mut self, op: &StoreOp) {
        self.lines += 1;
        let Some(fence) = op.fence else { return };
        let slot = (op.key.clone(), op.resource.clone());
        let line = Self::line(op, fence);
        if self.highest.get(&slot).is_some_and(|h| fence < h.fence) {
            self.stale(op, slot, line);
            return;
        }
        if !op.accepted {
            return;
        }
        if op.f != F::Read && self.written.get(&slot).is_none_or(|h| fence > h.fence) {
            self.written.insert(slot.clone(), line.clone());
        }
        if self.highest.get(&slot).is_none_or(|h| fence > h.fence) {
            self.highest.insert(slot, line);
        }
    }

    fn event(&mut self, cx: &Cx<'_>) {
        if !self.pairs.is_empty() {
            self.look_up(cx);
        }
    }

    fn certain(&self) -> u64 {
        if self.silent.is_some() { 0 } else { self.count }
    }

    fn tell(&self, track: &Tracker) -> Vec<(&'static str, Finding)> {
        let pair = self.pairs.last();
        pair.map(|p| (ENTRY.name, story(p, track).sorted()))
            .into_iter()
            .collect()
    }

    fn finish(self: Box<Self>, _: &Facts, track: &Tracker, out: &mut Results) {
        out.insert(ENTRY.name.into(), self.conclude(track));
    }
}

impl StaleFence {
    /// The two operations on the shortest cycle of the store's order and the fences' order.
    fn plainest(&self) -> Option<Pair> {
        let lines: Vec<(&Pair, &Line)> = self
            .pairs
            .iter()
            .flat_map(|p| [(p, &p.high), (p, &p.low)])
            .collect();
        let mut before = Vec::new();
        for (i, (p, a)) in lines.iter().enumerate() {
            for (j, (q, b)) in lines.iter().enumerate() {
                let one_key = p.key == q.key;
                if one_key && a.seq < b.seq {
                    before.push((i, j, Order::Store));
                }
                if one_key && a.fence < b.fence {
                    before.push((i, j, Order::Fence));
                }
                let ended = a.done.zip(b.invoke);
                if one_key && ended.is_some_and(|(d, v)| d.index < v.index) {
                    before.push((i, j, Order::RealTime));
                }
            }
        }
        let cycle = shortest_cycle(lines.len(), &before)?;
        let (first, _) = cycle.iter().find(|(_, why)| *why != Order::Fence)?;
        let (second, _) = cycle.iter().find(|(_, why)| *why == Order::Fence)?;
        Some(Pair {
            key: lines[*first].0.key.clone(),
            high: lines[*first].1.clone(),
            low: lines[*second].1.clone(),
        })
    }

    fn conclude(self, track: &Tracker) -> CheckResult {
        if let Some(why) = self.silent {
            return super::finding::unknown(why);
        }
        let mut findings = Findings::default();
        if let Some(pair) = self.plainest().or_else(|| self.pairs.first().cloned()) {
            findings.add(story(&pair, track));
        }
        findings.count = self.count;
        let unmet = match self.lines {
            0 => "no log of the store's own order",
            _ => "no operation with a superseded fence reached the store",
        };
        let why = plural(self.exercised, "operation") + " with a superseded fence, all refused";
        findings.conclude(self.exercised, holds_if(self.exercised, why, unmet))
    }
}
