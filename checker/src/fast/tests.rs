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

fn counted(permits: u32, habits: Habits) {
    let fast = |ops: &[Timed<LockOp>]| counting::check(ops, permits);
    against_oracle(|| Counting { permits }, habits, fast, 0);
}

fn owned(capacity: u32, habits: Habits, declined: u64) {
    let fast = |ops: &[Timed<LockOp>]| cores::check(ops, capacity);
    against_oracle(|| Owned { capacity }, habits, fast, declined);
}

fn with_fences(leased: bool, habits: Habits, declined: u64) {
    let fast = |ops: &[Timed<LockOp>]| fenced::check(ops, leased);
    let habits = Habits {
        fences: true,
        ..habits
    };
    against_oracle(|| FencedMutex { leased }, habits, fast, declined);
}

fn entered_again(limit: u32, habits: Habits) {
    let fast = |ops: &[Timed<LockOp>]| reentrant::check(ops, limit, reentrant::Fences::None);
    against_oracle(|| Reentrant { limit }, habits, fast, 40);
}

#[test]
fn mutex() {
    let habits = Habits {
        owners: false,
        tries: 30,
        questions: 15,
        ..Habits::owned()
    };
    counted(1, habits);
}

#[test]
fn semaphore() {
    let habits = Habits {
        owners: false,
        ..Habits::owned()
    };
    counted(2, habits);
    counted(3, habits);
}

#[test]
fn owner_mutex() {
    owned(1, Habits::owned(), 12);
    let habits = Habits {
        tries: 40,
        questions: 10,
        ..Habits::owned()
    };
    owned(1, habits, 30);
}

#[test]
fn shared_and_weighted() {
    for (capacity, declined) in [(1000, 16), (3, 15)] {
        let habits = Habits {
            weights: 2,
            heaviest: capacity,
            ..Habits::owned()
        };
        owned(capacity, habits, declined);
    }
}

#[test]
fn reentrant_mutex() {
    let habits = Habits {
        again: 35,
        revocations: 3,
        ..Habits::owned()
    };
    entered_again(2, habits);
    let habits = Habits {
        tries: 40,
        sweeps: 0,
        ..habits
    };
    entered_again(3, habits);
}

#[test]
fn fenced_mutex() {
    let named = Habits {
        named_release: true,
        revocations: 0,
        ..Habits::owned()
    };
    with_fences(false, Habits::owned(), 11);
    with_fences(false, Habits { tries: 20, ..named }, 42);
    with_fences(true, Habits::owned(), 13);
    with_fences(true, Habits { again: 20, ..named }, 30);
}

#[test]
fn reentrant_fenced() {
    for raise in [false, true] {
        let habits = Habits {
            fences: true,
            again: 35,
            keep: !raise,
            revocations: 3,
            ..Habits::owned()
        };
        let fences = match raise {
            true => reentrant::Fences::Raise,
            false => reentrant::Fences::Keep,
        };
        let fast = |ops: &[Timed<LockOp>]| reentrant::check(ops, u32::MAX, fences);
        against_oracle(|| ReentrantFenced { raise }, habits, fast, 40);
    }
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

/// The same faults in longer histories, against the search; `make` gives one of a shape.
fn against_search<M: Model>(
    name: &str,
    model: &M,
    make: impl Fn(Shape, &mut Rng) -> Vec<Timed<M::Op>>,
    fast: impl Fn(&[Timed<M::Op>]) -> Fast,
) {
    use crate::search::{Bounds, Found, run};
    let bounds = Bounds {
        deadline: None,
        memory: 1 << 30,
        max_states: 300_000,
        parallel: false,
    };
    let (mut compared, mut bad) = (0, 0);
    for seed in 0..cases() / 20 {
        let mut rng = Rng(seed ^ 0xB16);
        let shape = Shape {
            clients: 3 + rng.below(8),
            operations: 40 + rng.below(160),
            unknown: rng.below(4),
            lag: 40,
        };
        let ops = make(shape, &mut rng);
        let found = run(model, &ops, &[model.initial()], bounds).found;
        let legal = match found {
            Found::Linearizable => true,
            Found::Stuck { .. } => false,
            Found::Stopped { .. } => continue,
        };
        match fast(&ops) {
            Fast::Declined(_) => continue,
            Fast::Linearizable => assert!(legal, "{name}, seed {seed}: {found:?}\n{ops:#?}"),
            Fast::Violated(f) => assert!(!legal, "{name}, seed {seed}: {f:?}\n{ops:#?}"),
        }
        compared += 1;
        bad += u64::from(!legal);
    }
    eprintln!("{name}: {compared} compared, {bad} illegal");
    assert!(compared * 100 > cases(), "{name}: only {compared} compared");
}

fn long_locks<M: Model<Op = LockOp>>(
    name: &str,
    make: impl Fn() -> M,
    habits: Habits,
    fast: impl Fn(&[Timed<LockOp>]) -> Fast,
) {
    let habits = Habits {
        revocations: 0,
        ..habits
    };
    let of = |shape: Shape, rng: &mut Rng| {
        let mut clients = LockClients::new(make(), habits, shape.clients);
        let mut ops = generate::history(&mut clients, shape, rng);
        for _ in 0..rng.below(3) {
            perturb(&mut ops, &habits, rng);
        }
        ops
    };
    against_search(name, &make(), of, fast);
}

fn long_registers<M: Model<Op = RegOp>>(
    name: &str,
    make: impl Fn() -> M,
    mix: Mix,
    fast: impl Fn(&[Timed<RegOp>]) -> Fast,
) where
    M::State: registers::Shows,
{
    let of = |shape: Shape, rng: &mut Rng| {
        let mut ops = generate::history(&mut RegClients::new(make(), mix), shape, rng);
        for _ in 0..rng.below(3) {
            registers::perturb(&mut ops, &mix, rng);
        }
        ops
    };
    against_search(name, &make(), of, fast);
}

#[test]
fn long_histories_of_locks_agree_with_the_search() {
    let owned = Habits::owned();
    let nobody = Habits {
        owners: false,
        ..owned
    };
    let tries = Habits {
        tries: 20,
        questions: 10,
        ..nobody
    };
    for (permits, habits) in [(1, tries), (2, nobody)] {
        let fast = |ops: &[Timed<LockOp>]| counting::check(ops, permits);
        long_locks("counting", || Counting { permits }, habits, fast);
    }
    for capacity in [1, 3, 1000] {
        let habits = Habits {
            weights: capacity.min(2),
            heaviest: if capacity > 1 { capacity } else { 0 },
            ..owned
        };
        let fast = |ops: &[Timed<LockOp>]| cores::check(ops, capacity);
        long_locks("owned", || Owned { capacity }, habits, fast);
    }
    let again = Habits { again: 25, ..owned };
    let fast = |ops: &[Timed<LockOp>]| reentrant::check(ops, 3, reentrant::Fences::None);
    long_locks("reentrant", || Reentrant { limit: 3 }, again, fast);
}

#[test]
fn long_histories_of_fenced_locks_agree_with_the_search() {
    let fences = Habits {
        fences: true,
        ..Habits::owned()
    };
    for leased in [false, true] {
        let fast = |ops: &[Timed<LockOp>]| fenced::check(ops, leased);
        long_locks("fenced", || FencedMutex { leased }, fences, fast);
    }
    for (raise, policy) in [
        (false, reentrant::Fences::Keep),
        (true, reentrant::Fences::Raise),
    ] {
        let habits = Habits {
            again: 25,
            keep: !raise,
            ..fences
        };
        let fast = |ops: &[Timed<LockOp>]| reentrant::check(ops, u32::MAX, policy);
        long_locks(
            "reentrant-fenced",
            || ReentrantFenced { raise },
            habits,
            fast,
        );
    }
}

#[test]
fn long_histories_of_registers_agree_with_the_search() {
    let mix = Mix {
        reads: 55,
        ..Mix::default()
    };
    let fast = |ops: &[Timed<RegOp>]| zones::check(ops, 0);
    long_registers("register", || Register { initial: 0 }, mix, fast);
    let mix = Mix {
        fences: true,
        stale: 20,
        newer: 35,
        ..mix
    };
    let make = || FencedRegister {
        initial: 0,
        raise: false,
    };
    let fast = |ops: &[Timed<RegOp>]| fenced_register::check(ops, 0, false);
    long_registers("fenced-register", make, mix, fast);
}
