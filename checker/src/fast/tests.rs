#![allow(clippy::unwrap_used)]
//! The near-linear checkers against the oracle, on small histories of every
//! kind. `FENCEPOST_CASES` sets the number per model (see README).

use super::{Fast, Finding, cores, counting, fenced, fenced_register, reentrant, zones};
use crate::brute;
use crate::generate::locks::{Habits, LockClients, perturb};
use crate::generate::registers::{self, Mix, RegClients};
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
        .unwrap_or(4_000)
}

/// Runs the cases; at most `declined` percent may be left to the search.
fn against_oracle<M, F>(make: impl Fn() -> M, habits: Habits, fast: F, declined: u64)
where
    M: Model<Op = LockOp>,
    F: Fn(&[Timed<LockOp>]) -> Fast,
{
    let (mut skipped, mut bad) = (0, 0);
    let mut why = std::collections::BTreeMap::<&str, u64>::new();
    let model = make();
    for seed in 0..cases() {
        let mut rng = Rng(seed);
        let clients = 2 + rng.below(3);
        let unknown = [0, 10, 25][rng.below(3) as usize];
        let shape = Shape {
            clients,
            operations: 4 + rng.below(7),
            unknown,
            lag: 30 + rng.below(40),
        };
        let mut ops = generate::history(
            &mut LockClients::new(make(), habits, clients),
            shape,
            &mut rng,
        );
        let faults = rng.below(4);
        for _ in 0..faults {
            perturb(&mut ops, &habits, &mut rng);
        }
        let legal = brute::linearizable(&model, &ops, &[model.initial()]);
        assert!(
            legal || faults > 0,
            "seed {seed}: a good history is illegal: {ops:#?}"
        );
        bad += u64::from(!legal);
        match fast(&ops) {
            Fast::Declined(w) => {
                skipped += 1;
                *why.entry(w).or_default() += 1;
            }
            Fast::Linearizable => assert!(legal, "seed {seed}: missed\n{}", show(&ops)),
            Fast::Violated(f) => {
                assert!(!legal, "seed {seed}: {f:?} is no violation\n{}", show(&ops));
                let alone = f.class == "blocked-operation" || stands_alone(&model, &ops, &f);
                assert!(alone, "seed {seed}: {f:?}\n{}", show(&ops));
            }
        }
    }
    let n = cases();
    eprintln!("{n} cases: {bad} illegal, {skipped} declined {why:?}");
    assert!(bad * 25 > n, "only {bad} of {n} were illegal");
    assert!(
        skipped * 100 <= declined * n,
        "{skipped} of {n} were declined"
    );
}

/// Whether the operations of a finding, and nothing else, are illegal.
fn stands_alone<M: Model>(model: &M, ops: &[Timed<M::Op>], found: &Finding) -> bool {
    let mut at = found.ops.clone();
    at.sort_unstable();
    at.dedup();
    let alone: Vec<Timed<M::Op>> = at.iter().map(|&i| ops[i].clone()).collect();
    !brute::linearizable(model, &alone, &[model.initial()])
}

fn show(ops: &[Timed<LockOp>]) -> String {
    let line = |o: &Timed<LockOp>| {
        let ret = if o.is_optional() {
            "never".to_string()
        } else {
            o.ret.to_string()
        };
        format!(
            "[{}, {ret}] owner {} {:?} {:?} fence {:?} weight {}",
            o.call, o.op.owner, o.op.call, o.op.answer, o.op.fence, o.op.weight
        )
    };
    ops.iter().map(line).collect::<Vec<_>>().join("\n")
}

const OWNED: Habits = Habits {
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
};

#[test]
fn mutex() {
    let habits = Habits {
        owners: false,
        tries: 30,
        questions: 15,
        ..OWNED
    };
    against_oracle(
        || Counting { permits: 1 },
        habits,
        |ops| counting::check(ops, 1),
        0,
    );
}

#[test]
fn semaphore() {
    let habits = Habits {
        owners: false,
        ..OWNED
    };
    against_oracle(
        || Counting { permits: 2 },
        habits,
        |ops| counting::check(ops, 2),
        0,
    );
    against_oracle(
        || Counting { permits: 3 },
        habits,
        |ops| counting::check(ops, 3),
        0,
    );
}

#[test]
fn owner_mutex() {
    against_oracle(
        || Owned { capacity: 1 },
        OWNED,
        |ops| cores::check(ops, 1),
        12,
    );
}

#[test]
fn owner_mutex_with_tries() {
    let habits = Habits {
        tries: 40,
        questions: 10,
        ..OWNED
    };
    against_oracle(
        || Owned { capacity: 1 },
        habits,
        |ops| cores::check(ops, 1),
        30,
    );
}

#[test]
fn shared() {
    let habits = Habits {
        weights: 2,
        heaviest: 1000,
        ..OWNED
    };
    against_oracle(
        || Owned { capacity: 1000 },
        habits,
        |ops| cores::check(ops, 1000),
        16,
    );
}

#[test]
fn weighted() {
    let habits = Habits {
        weights: 2,
        heaviest: 3,
        ..OWNED
    };
    against_oracle(
        || Owned { capacity: 3 },
        habits,
        |ops| cores::check(ops, 3),
        15,
    );
}

#[test]
fn reentrant_mutex() {
    let habits = Habits {
        again: 35,
        revocations: 3,
        ..OWNED
    };
    against_oracle(
        || Reentrant { limit: 2 },
        habits,
        |ops| reentrant::check(ops, 2, reentrant::Fences::None),
        40,
    );
    let habits = Habits {
        again: 35,
        revocations: 3,
        tries: 40,
        sweeps: 0,
        ..OWNED
    };
    against_oracle(
        || Reentrant { limit: 3 },
        habits,
        |ops| reentrant::check(ops, 3, reentrant::Fences::None),
        40,
    );
}

#[test]
fn fenced_mutex() {
    let habits = Habits {
        fences: true,
        ..OWNED
    };
    against_oracle(
        || FencedMutex { leased: false },
        habits,
        |ops| fenced::check(ops, false),
        11,
    );
    let habits = Habits {
        fences: true,
        named_release: true,
        revocations: 0,
        tries: 20,
        ..OWNED
    };
    against_oracle(
        || FencedMutex { leased: false },
        habits,
        |ops| fenced::check(ops, false),
        42,
    );
}

#[test]
fn leased_fenced_mutex() {
    let habits = Habits {
        fences: true,
        ..OWNED
    };
    against_oracle(
        || FencedMutex { leased: true },
        habits,
        |ops| fenced::check(ops, true),
        13,
    );
    let habits = Habits {
        fences: true,
        named_release: true,
        revocations: 0,
        again: 20,
        ..OWNED
    };
    against_oracle(
        || FencedMutex { leased: true },
        habits,
        |ops| fenced::check(ops, true),
        30,
    );
}

#[test]
fn reentrant_fenced() {
    let habits = Habits {
        fences: true,
        again: 35,
        keep: true,
        revocations: 3,
        ..OWNED
    };
    let keep = |ops: &[Timed<LockOp>]| reentrant::check(ops, u32::MAX, reentrant::Fences::Keep);
    against_oracle(|| ReentrantFenced { raise: false }, habits, keep, 40);
    let raise = |ops: &[Timed<LockOp>]| reentrant::check(ops, u32::MAX, reentrant::Fences::Raise);
    against_oracle(
        || ReentrantFenced { raise: true },
        Habits {
            keep: false,
            ..habits
        },
        raise,
        40,
    );
}

fn registers_against_oracle<M>(
    make: impl Fn() -> M,
    mix: Mix,
    fast: impl Fn(&[Timed<RegOp>]) -> Fast,
) where
    M: Model<Op = RegOp>,
    M::State: registers::Shows,
{
    let (mut skipped, mut bad) = (0, 0);
    let model = make();
    let n = cases();
    for seed in 0..n {
        let mut rng = Rng(seed);
        let clients = 2 + rng.below(4);
        let unknown = [0, 10, 25][rng.below(3) as usize];
        let shape = Shape {
            clients,
            operations: 4 + rng.below(7),
            unknown,
            lag: 30 + rng.below(50),
        };
        let mut ops = generate::history(&mut RegClients::new(make(), mix), shape, &mut rng);
        let faults = rng.below(4);
        for _ in 0..faults {
            registers::perturb(&mut ops, &mix, &mut rng);
        }
        let legal = brute::linearizable(&model, &ops, &[model.initial()]);
        assert!(
            legal || faults > 0,
            "seed {seed}: a good history is illegal: {ops:#?}"
        );
        bad += u64::from(!legal);
        match fast(&ops) {
            Fast::Declined(_) => skipped += 1,
            Fast::Linearizable => assert!(legal, "seed {seed}: missed\n{ops:#?}"),
            Fast::Violated(f) => {
                assert!(!legal, "seed {seed}: {f:?} is no violation\n{ops:#?}");
                assert!(
                    stands_alone(&model, &ops, &f),
                    "seed {seed}: {f:?}\n{ops:#?}"
                );
            }
        }
    }
    eprintln!("{n} cases: {bad} illegal, {skipped} declined");
    assert!(
        bad * 25 > n && skipped * 20 <= n,
        "{bad} illegal, {skipped} declined of {n}"
    );
}

#[test]
fn register() {
    let mix = Mix {
        reads: 55,
        ..Mix::default()
    };
    registers_against_oracle(|| Register { initial: 0 }, mix, |ops| zones::check(ops, 0));
}

#[test]
fn fenced_register() {
    let mix = Mix {
        reads: 45,
        fences: true,
        stale: 40,
        newer: 35,
        ..Mix::default()
    };
    let make = || FencedRegister {
        initial: 0,
        raise: false,
    };
    registers_against_oracle(make, mix, |ops| fenced_register::check(ops, 0, false));
}

/// The same faults in longer histories, against the search.
fn against_search<M, F>(make: impl Fn() -> M, habits: Habits, fast: F)
where
    M: Model<Op = LockOp>,
    F: Fn(&[Timed<LockOp>]) -> Fast,
{
    use crate::search::{Bounds, Found, run};
    let bounds = Bounds {
        deadline: None,
        memory: 1 << 30,
        max_states: 300_000,
        parallel: false,
    };
    let (mut compared, mut bad) = (0, 0);
    let model = make();
    for seed in 0..cases() / 20 {
        let mut rng = Rng(seed ^ 0xB16);
        let clients = 3 + rng.below(8);
        let shape = Shape {
            clients,
            operations: 40 + rng.below(160),
            unknown: rng.below(4),
            lag: 40,
        };
        let mut ops = generate::history(
            &mut LockClients::new(make(), habits, clients),
            shape,
            &mut rng,
        );
        for _ in 0..rng.below(3) {
            perturb(&mut ops, &habits, &mut rng);
        }
        let found = run(&model, &ops, &[model.initial()], bounds).found;
        let legal = match found {
            Found::Linearizable => true,
            Found::Stuck { .. } => false,
            Found::Stopped { .. } => continue,
        };
        match fast(&ops) {
            Fast::Declined(_) => continue,
            Fast::Linearizable => assert!(legal, "seed {seed}: {found:?}\n{}", show(&ops)),
            Fast::Violated(f) => assert!(!legal, "seed {seed}: {f:?}\n{}", show(&ops)),
        }
        compared += 1;
        bad += u64::from(!legal);
    }
    eprintln!("{compared} compared, {bad} illegal");
    assert!(compared * 80 > cases(), "only {compared} compared");
}

#[test]
fn long_histories_agree_with_the_search() {
    let calm = Habits {
        revocations: 0,
        ..OWNED
    };
    let nobody = Habits {
        owners: false,
        tries: 20,
        questions: 10,
        ..calm
    };
    against_search(
        || Counting { permits: 1 },
        nobody,
        |ops| counting::check(ops, 1),
    );
    against_search(|| Owned { capacity: 1 }, calm, |ops| cores::check(ops, 1));
    let fenced = Habits {
        fences: true,
        ..calm
    };
    against_search(
        || FencedMutex { leased: false },
        fenced,
        |ops| fenced::check(ops, false),
    );
    let weighted = Habits {
        weights: 2,
        heaviest: 3,
        ..calm
    };
    against_search(
        || Owned { capacity: 3 },
        weighted,
        |ops| cores::check(ops, 3),
    );
}
