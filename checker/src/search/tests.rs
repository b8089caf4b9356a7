#![allow(clippy::unwrap_used)]
//! The search against the oracle, for models with every hint and with none.

use super::{Bounds, Found, run};
use crate::brute;
use crate::generate::locks::{self, Habits, LockClients};
use crate::generate::registers::{self, Mix, RegClients, Shows};
use crate::generate::{self, Rng, Shape};
use crate::model::Model;
use crate::models::lock::LockOp;
use crate::models::locks::{Counting, FencedMutex, Owned, Reentrant, ReentrantFenced};
use crate::models::register::{FencedRegister, RegOp, Register};
use crate::ops::Timed;

fn cases() -> u64 {
    std::env::var("FENCEPOST_CASES")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(3_000)
}

fn bounds() -> Bounds {
    Bounds {
        deadline: None,
        memory: 1 << 30,
        max_states: u64::MAX,
        parallel: false,
    }
}

fn agree<M: Model>(model: &M, seed: u64, ops: &[Timed<M::Op>]) -> bool {
    let legal = brute::linearizable(model, ops, &[model.initial()]);
    let found = run(model, ops, &[model.initial()], bounds()).found;
    assert_eq!(
        found == Found::Linearizable,
        legal,
        "seed {seed}: {found:?}\n{ops:#?}"
    );
    !legal
}

fn lock<M: Model<Op = LockOp>>(make: impl Fn() -> M, habits: Habits) {
    let mut bad = 0;
    for seed in 0..cases() {
        let mut rng = Rng(seed);
        let clients = 2 + rng.below(4);
        let shape = Shape {
            clients,
            operations: 5 + rng.below(8),
            unknown: 10 * rng.below(4),
            lag: 30 + rng.below(40),
        };
        let mut ops = generate::history(
            &mut LockClients::new(make(), habits, clients),
            shape,
            &mut rng,
        );
        for _ in 0..rng.below(4) {
            locks::perturb(&mut ops, &habits, &mut rng);
        }
        bad += u64::from(agree(&make(), seed, &ops));
    }
    assert!(bad * 20 > cases(), "{bad} illegal");
}

fn register<M>(make: impl Fn() -> M, mix: Mix)
where
    M: Model<Op = RegOp>,
    M::State: Shows,
{
    let mut bad = 0;
    for seed in 0..cases() {
        let mut rng = Rng(seed);
        let clients = 2 + rng.below(5);
        let shape = Shape {
            clients,
            operations: 5 + rng.below(8),
            unknown: 10 * rng.below(4),
            lag: 30 + rng.below(50),
        };
        let mut ops = generate::history(&mut RegClients::new(make(), mix), shape, &mut rng);
        for _ in 0..rng.below(4) {
            registers::perturb(&mut ops, &mix, &mut rng);
        }
        bad += u64::from(agree(&make(), seed, &ops));
    }
    assert!(bad * 30 > cases(), "{bad} illegal");
}

fn owned() -> Habits {
    Habits {
        tries: 30,
        questions: 10,
        ..Habits::owned()
    }
}

#[test]
fn locks_agree() {
    lock(
        || Counting { permits: 1 },
        Habits {
            owners: false,
            ..owned()
        },
    );
    lock(
        || Counting { permits: 2 },
        Habits {
            owners: false,
            ..owned()
        },
    );
    lock(|| Owned { capacity: 1 }, owned());
    lock(
        || Owned { capacity: 3 },
        Habits {
            weights: 2,
            heaviest: 3,
            ..owned()
        },
    );
    lock(
        || Reentrant { limit: 2 },
        Habits {
            again: 30,
            ..owned()
        },
    );
}

#[test]
fn fenced_locks_agree() {
    let fenced = Habits {
        fences: true,
        ..owned()
    };
    lock(|| FencedMutex { leased: false }, fenced);
    lock(
        || FencedMutex { leased: true },
        Habits {
            tries: 0,
            named_release: true,
            ..fenced
        },
    );
    lock(
        || ReentrantFenced { raise: false },
        Habits {
            again: 30,
            keep: true,
            ..fenced
        },
    );
    lock(
        || ReentrantFenced { raise: true },
        Habits {
            again: 30,
            ..fenced
        },
    );
}

#[test]
fn registers_agree() {
    register(
        || Register { initial: 0 },
        Mix {
            reads: 50,
            ..Mix::default()
        },
    );
    register(
        || Register { initial: 0 },
        Mix {
            reads: 40,
            cas: 50,
            values: 3,
            ..Mix::default()
        },
    );
    register(
        || Register { initial: 0 },
        Mix {
            reads: 50,
            cas: 10,
            values: 2,
            ..Mix::default()
        },
    );
    let fenced = Mix {
        reads: 40,
        fences: true,
        stale: 40,
        newer: 35,
        ..Mix::default()
    };
    register(
        || FencedRegister {
            initial: 0,
            raise: false,
        },
        fenced,
    );
    register(
        || FencedRegister {
            initial: 0,
            raise: true,
        },
        Mix {
            raise: true,
            values: 3,
            ..fenced
        },
    );
}

/// Good histories with stamps swapped, answers exchanged, operations dropped.
fn objects<W, F>(make: F)
where
    W: generate::Workload,
    F: Fn() -> W,
{
    let mut bad = 0;
    for seed in 0..cases() {
        let mut rng = Rng(seed);
        let shape = Shape {
            clients: 2 + rng.below(5),
            operations: 5 + rng.below(8),
            unknown: 10 * rng.below(3),
            lag: 30 + rng.below(50),
        };
        let mut ops = generate::history(&mut make(), shape, &mut rng);
        for _ in 0..rng.below(4) {
            let (i, j) = (
                rng.below(ops.len() as u64) as usize,
                rng.below(ops.len() as u64) as usize,
            );
            match rng.below(3) {
                0 => generate::swap_stamps(&mut ops, &mut rng),
                1 if !ops[i].is_optional() && !ops[j].is_optional() => {
                    let other = ops[j].op.clone();
                    ops[j].op = std::mem::replace(&mut ops[i].op, other);
                }
                _ if ops.len() > 1 => drop(ops.remove(i)),
                _ => {}
            }
        }
        bad += u64::from(agree(make().model(), seed, &ops));
    }
    assert!(bad * 30 > cases(), "{bad} illegal");
}

#[test]
fn objects_agree() {
    use crate::generate::objects::{KvClients, QueueClients, SetClients};
    objects(|| KvClients::new(1, 15));
    objects(|| KvClients::new(1, 50));
    objects(|| KvClients::new(3, 20));
    objects(QueueClients::new);
    objects(|| SetClients::new(0));
    objects(|| SetClients::new(20));
}
