//! Clients of a lock: acquire, work, release; now and then a try, a question,
//! a release of what is not held, or a revocation of somebody else's hold.

use super::{Rng, Workload};
use crate::model::Model;
use crate::models::lock::{Answer, LockCall, LockOp};

/// What lock clients do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Habits {
    pub owners: bool,
    pub fences: bool,
    /// Releases name the fence of the grant.
    pub named_release: bool,
    /// Weights of grants are 1..=`weights`; 0 means 1. `shared` makes the heaviest `capacity`.
    pub weights: u32,
    pub heaviest: u32,
    /// Percent of calls.
    pub tries: u64,
    pub questions: u64,
    pub revocations: u64,
    /// Percent of acquires while holding (re-entrant).
    pub again: u64,
    /// Re-entrant grants keep their token.
    pub keep: bool,
    /// Percent of unknown outcomes after which the client sweeps up by a release.
    pub sweeps: u64,
}

impl Habits {
    /// Each client is an owner, takes one permit, sweeps up after most unknown outcomes, and now and then releases
    /// what another holds.
    pub const fn owned() -> Habits {
        Habits {
            owners: true,
            fences: false,
            named_release: false,
            weights: 1,
            heaviest: 0,
            tries: 0,
            questions: 0,
            revocations: 8,
            again: 0,
            keep: false,
            sweeps: 60,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Client {
    held: Vec<Option<u64>>,
    sweep: bool,
}

/// A workload of lock clients, one owner each.
pub struct LockClients<M> {
    pub model: M,
    pub habits: Habits,
    clients: Vec<Client>,
    fence: u64,
}

impl<M> LockClients<M> {
    pub fn new(model: M, habits: Habits, clients: u64) -> Self {
        LockClients {
            model,
            habits,
            clients: vec![Client::default(); clients as usize],
            fence: 0,
        }
    }

    fn owner(&self, client: u64) -> u32 {
        if self.habits.owners { client as u32 } else { 0 }
    }
}

impl<M: Model<Op = LockOp>> Workload for LockClients<M> {
    type Model = M;

    fn model(&self) -> &M {
        &self.model
    }

    fn call(&mut self, client: u64, rng: &mut Rng) -> LockOp {
        let h = self.habits;
        let op = |call, owner, fence, weight| LockOp {
            fence,
            owner,
            weight,
            call,
            answer: Answer::Unknown,
        };
        if rng.percent(h.questions) {
            return op(LockCall::Held, 0, None, 0);
        }
        if rng.percent(h.revocations) {
            let other = rng.below(self.clients.len() as u64);
            let fence = self.clients[other as usize]
                .held
                .last()
                .copied()
                .flatten()
                .filter(|_| h.named_release);
            return op(LockCall::Release, self.owner(other), fence, 0);
        }
        let c = &mut self.clients[client as usize];
        let sweep = std::mem::take(&mut c.sweep) && rng.percent(h.sweeps);
        if (!c.held.is_empty() && !rng.percent(h.again)) || sweep {
            let fence = c.held.last().copied().flatten().filter(|_| h.named_release);
            return op(LockCall::Release, self.owner(client), fence, 0);
        }
        let weight = match h.weights {
            0 | 1 => 1,
            n if rng.percent(30) && h.heaviest > 0 => h.heaviest.max(n),
            n => 1 + rng.below(u64::from(n)) as u32,
        };
        op(LockCall::Acquire, self.owner(client), None, weight)
    }

    fn answers(&mut self, _: &M::State, call: &LockOp, rng: &mut Rng) -> Vec<LockOp> {
        let with = |answer| LockOp { answer, ..*call };
        match call.call {
            LockCall::Acquire => {
                let mut all = Vec::new();
                if self.habits.fences {
                    if self.habits.keep {
                        all.push(LockOp {
                            fence: Some(self.fence),
                            ..with(Answer::Yes)
                        });
                    }
                    self.fence += 1 + rng.below(2) * rng.below(3);
                    all.push(LockOp {
                        fence: Some(self.fence),
                        ..with(Answer::Yes)
                    });
                } else {
                    all.push(with(Answer::Yes));
                }
                if rng.percent(self.habits.tries) {
                    all.push(with(Answer::No));
                }
                all
            }
            _ => vec![with(Answer::Yes), with(Answer::No)],
        }
    }

    fn learn(&mut self, client: u64, call: &LockOp, answer: Option<&LockOp>) {
        let c = &mut self.clients[client as usize];
        match (call.call, answer) {
            (LockCall::Held, _) => {}
            (_, None) => {
                c.held.clear();
                c.sweep = true;
            }
            (LockCall::Acquire, Some(a)) if a.answer == Answer::Yes => c.held.push(a.fence),
            (LockCall::Release, Some(_)) if call.owner == client as u32 => {
                c.held.pop();
            }
            _ => {}
        }
    }
}

/// Changes one answer, owner, fence or outcome: most often a fault.
pub fn perturb(ops: &mut Vec<crate::ops::Timed<LockOp>>, habits: &Habits, rng: &mut Rng) {
    if ops.is_empty() {
        return;
    }
    let i = rng.below(ops.len() as u64) as usize;
    let o = &mut ops[i];
    match rng.below(7) {
        0 if o.op.answer != Answer::Unknown
            && (habits.owners || o.op.call != LockCall::Release) =>
        {
            let acquire = o.op.call == LockCall::Acquire;
            o.op.answer = if o.op.answer == Answer::Yes {
                Answer::No
            } else {
                Answer::Yes
            };
            if acquire {
                o.op.fence = (habits.fences && o.op.answer == Answer::Yes).then(|| rng.below(8));
            }
            if acquire && o.op.answer == Answer::No && habits.tries == 0 {
                ops.remove(i);
            }
        }
        1 if habits.fences => o.op.fence = o.op.fence.map(|f| (f + rng.below(5)).saturating_sub(2)),
        2 if habits.owners && o.op.call != LockCall::Held => o.op.owner = rng.below(3) as u32,
        3 => {
            let held = o.op.call == LockCall::Held
                || o.op.answer == Answer::No && o.op.call == LockCall::Acquire;
            (o.ret, o.op.answer) = (crate::ops::NEVER, Answer::Unknown);
            if o.op.call == LockCall::Acquire {
                o.op.fence = None;
            }
            if held {
                ops.remove(i);
            }
        }
        4 => {
            ops.remove(i);
        }
        _ => super::swap_stamps(ops, rng),
    }
}
