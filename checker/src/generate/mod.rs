//! Seeded histories, good by construction: clients call an object that follows
//! its model, each operation taking effect at one instant of its interval.

pub mod events;
pub mod locks;
pub mod objects;
pub mod registers;

use crate::model::Model;
use crate::ops::{NEVER, Timed};

/// A model of each kind, by the name that a check takes.
pub const MODELS: [&str; 16] = [
    "mutex",
    "owner-mutex",
    "reentrant:2",
    "fenced-mutex",
    "fenced-mutex-leased",
    "reentrant-fenced:raise",
    "shared",
    "semaphore:2",
    "weighted-semaphore:3",
    "register",
    "cas-register",
    "fenced-register:raise",
    "kv",
    "multi-register",
    "queue",
    "set",
];

/// SplitMix64: small, and the same on every platform and release.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform below `n`, which must not be 0 (bias below 2⁻³² for small `n`).
    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }

    pub fn percent(&mut self, p: u64) -> bool {
        self.below(100) < p
    }
}

/// What a history is like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub clients: u64,
    pub operations: u64,
    /// Percent of operations whose outcome nobody learns.
    pub unknown: u64,
    /// Percent of chances at which an operation that could take effect does not yet.
    pub lag: u64,
}

/// A workload over a model.
pub trait Workload {
    type Model: Model;

    fn model(&self) -> &Self::Model;

    /// The next call of a client, without an answer.
    fn call(&mut self, client: u64, rng: &mut Rng) -> OpOf<Self>;

    /// Answers that the object may give to a call, the preferred one first. The
    /// first that the model allows is given; none allowed means that the call waits.
    fn answers(
        &mut self,
        state: &<Self::Model as Model>::State,
        call: &OpOf<Self>,
        rng: &mut Rng,
    ) -> Vec<OpOf<Self>>;

    /// Tells the client the answer; `None` when it is unknown.
    fn learn(&mut self, _client: u64, _call: &OpOf<Self>, _answer: Option<&OpOf<Self>>) {}
}

type OpOf<W> = <<W as Workload>::Model as Model>::Op;

enum Phase<O> {
    Idle,
    Called { at: u64, call: O, answer: Option<O> },
}

/// Runs a workload. Operations are sorted by call; stamps are 0, 1, 2, ….
pub fn history<W: Workload>(workload: &mut W, shape: Shape, rng: &mut Rng) -> Vec<Timed<OpOf<W>>> {
    let mut state = workload.model().initial();
    let mut clients: Vec<(u64, Phase<OpOf<W>>)> =
        (0..shape.clients).map(|c| (c, Phase::Idle)).collect();
    let (mut stamp, mut calls, mut fresh) = (0, 0, shape.clients);
    let mut ops = Vec::new();
    // Lost operations that may still take effect.
    let mut lost: Vec<OpOf<W>> = Vec::new();
    let mut idle_turns = 0;
    while idle_turns < 200 * shape.clients {
        idle_turns += 1;
        if !lost.is_empty() && rng.percent(10) {
            let call = lost.swap_remove(rng.below(lost.len() as u64) as usize);
            take_effect(workload, &mut state, &call, rng);
        }
        let c = rng.below(shape.clients) as usize;
        match std::mem::replace(&mut clients[c].1, Phase::Idle) {
            Phase::Idle if calls < shape.operations => {
                let call = workload.call(c as u64, rng);
                clients[c].1 = Phase::Called {
                    at: stamp,
                    call,
                    answer: None,
                };
                (stamp, calls, idle_turns) = (stamp + 1, calls + 1, 0);
            }
            Phase::Idle => {}
            Phase::Called { at, call, answer } => {
                let process = clients[c].0;
                if rng.percent(shape.unknown) && rng.percent(50) {
                    workload.learn(c as u64, &call, None);
                    ops.push(Timed {
                        call: at,
                        ret: NEVER,
                        process,
                        op: call.clone(),
                    });
                    if answer.is_none() {
                        lost.push(call);
                    }
                    clients[c].0 = fresh;
                    fresh += 1;
                } else if let Some(op) = answer {
                    workload.learn(c as u64, &call, Some(&op));
                    ops.push(Timed {
                        call: at,
                        ret: stamp,
                        process,
                        op,
                    });
                    (stamp, idle_turns) = (stamp + 1, 0);
                } else {
                    let answer = if rng.percent(shape.lag) {
                        None
                    } else {
                        take_effect(workload, &mut state, &call, rng)
                    };
                    clients[c].1 = Phase::Called { at, call, answer };
                }
            }
        }
    }
    for (process, phase) in clients {
        if let Phase::Called { at, call, .. } = phase {
            ops.push(Timed {
                call: at,
                ret: NEVER,
                process,
                op: call,
            });
        }
    }
    ops.sort_by_key(|o| o.call);
    ops
}

fn take_effect<W: Workload>(
    workload: &mut W,
    state: &mut <W::Model as Model>::State,
    call: &OpOf<W>,
    rng: &mut Rng,
) -> Option<OpOf<W>> {
    for answer in workload.answers(state, call, rng) {
        if let Some(next) = workload.model().step(state, &answer) {
            *state = next;
            return Some(answer);
        }
    }
    None
}

/// Swaps two neighbouring stamps of the history, so that an interval shrinks or
/// an order turns round. Keeps stamps unique and every call before its return.
pub fn swap_stamps<O>(ops: &mut [Timed<O>], rng: &mut Rng) {
    let mut stamps: Vec<u64> = ops
        .iter()
        .flat_map(|o| [o.call, o.ret])
        .filter(|s| *s != NEVER)
        .collect();
    stamps.sort_unstable();
    if stamps.len() < 2 {
        return;
    }
    let i = rng.below(stamps.len() as u64 - 1) as usize;
    let (a, b) = (stamps[i], stamps[i + 1]);
    if ops.iter().any(|o| o.call == a && o.ret == b) {
        return;
    }
    for o in ops.iter_mut() {
        for s in [&mut o.call, &mut o.ret] {
            *s = match *s {
                s if s == a => b,
                s if s == b => a,
                s => s,
            };
        }
    }
    ops.sort_by_key(|o| o.call);
}
