//! Clients of a register: read, write, compare-and-set, with fences or without.

use super::{Rng, Workload};
use crate::model::Model;
use crate::models::register::{RegCall, RegOp, Took};

#[derive(Clone, Copy, Debug, Default)]
pub struct Mix {
    /// Percent of calls.
    pub reads: u64,
    pub cas: u64,
    /// Values are drawn from 1..=`values`; 0: every write has its own.
    pub values: u32,
    pub fences: bool,
    /// Percent of writes with a fence below the newest, and of writes with a new one.
    pub stale: u64,
    pub newer: u64,
    /// Reads carry a fence too.
    pub raise: bool,
}

pub struct RegClients<M> {
    pub model: M,
    pub mix: Mix,
    next: u32,
    fence: u64,
}

impl<M> RegClients<M> {
    pub fn new(model: M, mix: Mix) -> Self {
        RegClients {
            model,
            mix,
            next: 0,
            fence: 1,
        }
    }

    fn value(&mut self, rng: &mut Rng) -> u32 {
        if self.mix.values > 0 {
            return 1 + rng.below(u64::from(self.mix.values)) as u32;
        }
        self.next += 1;
        self.next
    }
}

/// How a state shows its value.
pub trait Shows {
    fn value(&self) -> u32;
}

impl Shows for u32 {
    fn value(&self) -> u32 {
        *self
    }
}

impl Shows for (u32, u64) {
    fn value(&self) -> u32 {
        self.0
    }
}

impl<M: Model<Op = RegOp>> Workload for RegClients<M>
where
    M::State: Shows,
{
    type Model = M;

    fn model(&self) -> &M {
        &self.model
    }

    fn call(&mut self, _: u64, rng: &mut Rng) -> RegOp {
        let mut op = RegOp {
            fence: 0,
            a: 0,
            b: 0,
            call: RegCall::Read,
            took: Took::Unknown,
        };
        if self.mix.fences {
            self.fence += u64::from(rng.percent(self.mix.newer));
            op.fence = self
                .fence
                .saturating_sub(u64::from(rng.percent(self.mix.stale)) * (1 + rng.below(2)));
        }
        if rng.percent(self.mix.reads) {
            op.fence *= u64::from(self.mix.raise);
            return op;
        }
        op.call = if rng.percent(self.mix.cas) {
            RegCall::Cas
        } else {
            RegCall::Write
        };
        op.a = self.value(rng);
        if op.call == RegCall::Cas {
            op.b = self.value(rng);
        }
        op
    }

    fn answers(&mut self, state: &M::State, call: &RegOp, _: &mut Rng) -> Vec<RegOp> {
        let a = if call.call == RegCall::Read {
            state.value()
        } else {
            call.a
        };
        vec![
            RegOp {
                a,
                took: Took::Yes,
                ..*call
            },
            RegOp {
                took: Took::No,
                ..*call
            },
        ]
    }
}

/// Changes one answer, fence or outcome: most often a fault.
pub fn perturb(ops: &mut Vec<crate::ops::Timed<RegOp>>, mix: &Mix, rng: &mut Rng) {
    if ops.is_empty() {
        return;
    }
    let i = rng.below(ops.len() as u64) as usize;
    let other = ops[rng.below(ops.len() as u64) as usize].op.a;
    let o = &mut ops[i];
    match (rng.below(6), o.op.call) {
        (0, RegCall::Read) if o.op.took == Took::Yes => o.op.a = other,
        (1, RegCall::Write) if mix.fences => {
            o.op.fence = (o.op.fence + rng.below(3)).saturating_sub(1)
        }
        (1, RegCall::Cas) => {
            o.op.took = if o.op.took == Took::Yes {
                Took::No
            } else {
                Took::Yes
            }
        }
        (2, RegCall::Write) if mix.fences && !o.is_optional() => {
            o.op.took = if o.op.took == Took::Yes {
                Took::No
            } else {
                Took::Yes
            };
        }
        (3, _) => {
            ops.remove(i);
        }
        _ => super::swap_stamps(ops, rng),
    }
}
