//! A history laid out for the search: events in order, pending operations in
//! slots, equal operations in classes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashMap;

use super::guide::{Guides, Touch};
use crate::model::Model;
use crate::ops::Timed;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// A known operation is called.
    Call { slot: u32, class: u32 },
    /// One more optional operation of a class may take effect from here on.
    Offer { class: u32 },
    /// A known operation returns: by now it must have taken effect.
    Return { slot: u32, op: u32 },
}

/// What the search knows about a class of equal operations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Class {
    /// An operation of the class.
    pub op: u32,
    pub read: bool,
    pub blind: bool,
    /// Allowed in every state.
    pub total: bool,
    /// Part of the state that it touches, where that helps to prune.
    pub part: Option<u32>,
}

pub(crate) struct Plan {
    pub steps: Vec<Step>,
    pub stamps: Vec<u64>,
    pub classes: Vec<Class>,
    pub slots: u32,
    pub guides: Guides,
}

/// Position of every operation's class; classes.
fn classes<M: Model>(model: &M, ops: &[Timed<M::Op>]) -> (Vec<u32>, Vec<Class>) {
    let mut by_op: HashMap<&M::Op, u32, foldhash::fast::RandomState> = HashMap::default();
    let mut classes: Vec<Class> = Vec::new();
    let mut class_of = Vec::with_capacity(ops.len());
    for (i, o) in ops.iter().enumerate() {
        let class = *by_op.entry(&o.op).or_insert_with(|| {
            classes.push(Class {
                op: i as u32,
                read: model.is_read(&o.op),
                blind: model.overwrites(&o.op),
                total: model.total(&o.op),
                part: model.part(&o.op),
            });
            classes.len() as u32 - 1
        });
        class_of.push(class);
    }
    (class_of, classes)
}

impl Plan {
    /// Lays out operations, which must be sorted by call.
    pub fn new<M: Model>(model: &M, ops: &[Timed<M::Op>]) -> Plan {
        let (class_of, classes) = classes(model, ops);
        let spans: Vec<(u64, u64)> = ops.iter().map(|o| (o.call, o.ret)).collect();
        let op = |class: u32| &ops[classes[class as usize].op as usize].op;
        let resets = |reset: u32, read: u32| model.resets(op(reset), op(read));
        lay_out(&spans, &class_of, classes.clone(), &resets)
    }
}

fn lay_out(
    spans: &[(u64, u64)],
    class_of: &[u32],
    classes: Vec<Class>,
    resets: &dyn Fn(u32, u32) -> bool,
) -> Plan {
    let class = |i: usize| &classes[class_of[i] as usize];
    let never = |i: usize| spans[i].1 == crate::ops::NEVER;
    let mut events: Vec<(u64, bool, u32)> = Vec::with_capacity(2 * spans.len());
    for (i, &(call, ret)) in spans
        .iter()
        .enumerate()
        .filter(|&(i, _)| !(never(i) && class(i).read))
    {
        events.push((call, false, i as u32));
        if !never(i) {
            events.push((ret, true, i as u32));
        }
    }
    events.sort_unstable();
    let (mut free, mut slots, mut slot_of) = (BinaryHeap::new(), 0, vec![0u32; spans.len()]);
    let (mut steps, mut stamps) = (
        Vec::with_capacity(events.len()),
        Vec::with_capacity(events.len()),
    );
    for (stamp, ret, op) in events {
        let i = op as usize;
        stamps.push(stamp);
        if ret {
            free.push(Reverse(slot_of[i]));
            steps.push(Step::Return {
                slot: slot_of[i],
                op,
            });
        } else if never(i) {
            steps.push(Step::Offer { class: class_of[i] });
        } else {
            slot_of[i] = free.pop().map_or(slots, |Reverse(s)| s);
            slots = slots.max(slot_of[i] + 1);
            steps.push(Step::Call {
                slot: slot_of[i],
                class: class_of[i],
            });
        }
    }
    let touches = (0..spans.len()).filter_map(|i| {
        let (call, ret) = spans[i];
        let Class { part, read, .. } = *class(i);
        let (slot, class) = (slot_of[i], class_of[i]);
        part.map(|part| Touch {
            part,
            call,
            ret,
            slot,
            class,
            read,
            op: i as u32,
        })
    });
    let guides = Guides::new(touches, resets);
    Plan {
        steps,
        stamps,
        classes,
        slots,
        guides,
    }
}
