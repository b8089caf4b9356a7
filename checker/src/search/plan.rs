//! A history laid out for the search: events in order, pending operations in
//! slots, equal operations in classes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashMap;

use crate::model::Model;
use crate::ops::Timed;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// A known operation is called: slot, class, position.
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
}

pub(crate) struct Plan {
    pub steps: Vec<Step>,
    pub stamps: Vec<u64>,
    pub classes: Vec<Class>,
    pub slots: u32,
}

impl Plan {
    /// Lays out operations, which must be sorted by call.
    pub fn new<M: Model>(model: &M, ops: &[Timed<M::Op>]) -> Plan {
        let mut by_op: HashMap<&M::Op, u32, foldhash::fast::RandomState> = HashMap::default();
        let mut classes: Vec<Class> = Vec::new();
        let mut events: Vec<(u64, bool, u32)> = Vec::with_capacity(2 * ops.len());
        let mut class_of = Vec::with_capacity(ops.len());
        for (i, o) in ops.iter().enumerate() {
            let class = *by_op.entry(&o.op).or_insert_with(|| {
                classes.push(Class {
                    op: i as u32,
                    read: model.is_read(&o.op),
                    blind: model.overwrites(&o.op),
                });
                classes.len() as u32 - 1
            });
            class_of.push(class);
            if o.is_optional() && classes[class as usize].read {
                continue;
            }
            events.push((o.call, false, i as u32));
            if !o.is_optional() {
                events.push((o.ret, true, i as u32));
            }
        }
        events.sort_unstable();
        let (mut free, mut slots, mut slot_of) = (BinaryHeap::new(), 0, vec![0u32; ops.len()]);
        let (mut steps, mut stamps) = (
            Vec::with_capacity(events.len()),
            Vec::with_capacity(events.len()),
        );
        for (stamp, ret, i) in events {
            let (op, class) = (i, class_of[i as usize]);
            stamps.push(stamp);
            if ret {
                let slot = slot_of[i as usize];
                free.push(Reverse(slot));
                steps.push(Step::Return { slot, op });
            } else if ops[i as usize].is_optional() {
                steps.push(Step::Offer { class });
            } else {
                let slot = free.pop().map_or_else(
                    || {
                        slots += 1;
                        slots - 1
                    },
                    |Reverse(s)| s,
                );
                slot_of[i as usize] = slot;
                steps.push(Step::Call { slot, class });
            }
        }
        Plan {
            steps,
            stamps,
            classes,
            slots,
        }
    }
}
