//! Good histories with injected faults, as events from end to end: every one that an independent oracle calls illegal is
//! found, none that it calls legal, and the evidence alone is illegal to the oracle too.
//!
//! `FENCEPOST_CASES=10000 cargo test -p fencepost-checker --test faults -- --nocapture` sets the number of illegal ones
//! wanted of each model.
#![allow(clippy::unwrap_used)]

mod oracle;

use fencepost_checker::generate::events::{of_lock, of_register};
use fencepost_checker::generate::locks::{self, Habits, LockClients};
use fencepost_checker::generate::registers::{self, Mix, RegClients, Shows};
use fencepost_checker::generate::{Rng, Shape, history};
use fencepost_checker::models::lock::LockOp;
use fencepost_checker::models::locks::{Counting, FencedMutex, Owned};
use fencepost_checker::models::register::{RegOp, Register};
use fencepost_checker::{Engine, Model, Options, Outcome, Timed, check_events};
use fencepost_history::{Event, Value};
use oracle::{Op, Spec, operations};

fn wanted() -> u64 {
    let cases = std::env::var("FENCEPOST_CASES").ok();
    cases.and_then(|s| s.parse().ok()).unwrap_or(300)
}

fn shape(rng: &mut Rng) -> Shape {
    Shape {
        clients: 2 + rng.below(3),
        operations: 4 + rng.below(7),
        unknown: [0, 10, 25][rng.below(3) as usize],
        lag: 30 + rng.below(40),
    }
}

/// Runs seeds until enough histories were illegal; `make` gives a history of a seed.
fn hunt(model: &str, spec: Spec, make: impl Fn(&mut Rng) -> Vec<Event>) {
    let (mut illegal, mut legal, mut alone, mut seed) = (0, 0, 0, 0u64);
    let start = Some(&Value::Int(0)).filter(|_| spec.permits == 0);
    while illegal < wanted() {
        seed += 1;
        let events = make(&mut Rng(seed));
        let ops = operations(&events);
        let good = spec.legal(&ops);
        let options = Options {
            engine: if seed.is_multiple_of(2) {
                Engine::Auto
            } else {
                Engine::Both
            },
            parallel: false,
            ..Options::default()
        };
        let report = match check_events(&events, model, start, &options) {
            Ok(report) => report,
            Err(e) => panic!("{model}, seed {seed}: {e}\n{ops:#?}"),
        };
        match report.outcome {
            Outcome::Linearizable => assert!(good, "{model}, seed {seed}: missed\n{ops:#?}"),
            Outcome::Violated(why) => {
                assert!(!good, "{model}, seed {seed}: {why:?} is none\n{ops:#?}");
                // A search's window begins in states that what came before allows; the near-linear ones' stand alone.
                if report.decided_by != "search" && why.start.is_empty() {
                    let cited = |o: &Op| {
                        [Some(o.call), o.ret]
                            .iter()
                            .flatten()
                            .any(|i| why.evidence.contains(i))
                    };
                    let only: Vec<Op> = ops.iter().filter(|o| cited(o)).cloned().collect();
                    assert!(
                        !spec.legal(&only),
                        "{model}, seed {seed}: {why:?}\n{ops:#?}"
                    );
                    alone += 1;
                }
            }
            Outcome::Unknown(s) => panic!("{model}, seed {seed}: unknown, {}", s.reason),
        }
        match good {
            true => legal += 1,
            false => illegal += 1,
        }
        assert!(seed < 200 * wanted(), "{model}: too few faults");
    }
    eprintln!(
        "{model}: {illegal} illegal, all found; {legal} legal, none flagged; {alone} witnesses illegal alone"
    );
}

/// Faults may make calls of one client overlap: each gets a process of its own.
fn apart<O>(ops: &mut [Timed<O>]) {
    for (process, o) in (0..).zip(ops) {
        o.process = process;
    }
}

fn lock<M: Model<Op = LockOp>>(model: &str, spec: Spec, habits: Habits, object: impl Fn() -> M) {
    hunt(model, spec, |rng| {
        let shape = shape(rng);
        let mut clients = LockClients::new(object(), habits, shape.clients);
        let mut ops = history(&mut clients, shape, rng);
        for _ in 0..rng.below(4) {
            locks::perturb(&mut ops, &habits, rng);
        }
        apart(&mut ops);
        of_lock(&ops).collect()
    });
}

fn register<M: Model<Op = RegOp>>(model: &str, mix: Mix, object: impl Fn() -> M)
where
    M::State: Shows,
{
    let spec = Spec {
        permits: 0,
        owners: false,
        fences: false,
        leased: false,
    };
    hunt(model, spec, |rng| {
        let shape = shape(rng);
        let mut ops = history(&mut RegClients::new(object(), mix), shape, rng);
        for _ in 0..rng.below(4) {
            registers::perturb(&mut ops, &mix, rng);
        }
        apart(&mut ops);
        of_register(&ops).collect()
    });
}

const LOCK: Spec = Spec {
    permits: 1,
    owners: true,
    fences: false,
    leased: false,
};

const OWNED: Habits = Habits {
    owners: true,
    fences: false,
    named_release: false,
    weights: 1,
    heaviest: 0,
    tries: 0,
    questions: 0,
    revocations: 4,
    again: 0,
    keep: false,
    sweeps: 60,
};

#[test]
fn mutex() {
    let spec = Spec {
        owners: false,
        ..LOCK
    };
    let habits = Habits {
        owners: false,
        ..OWNED
    };
    lock("mutex", spec, habits, || Counting { permits: 1 });
    let two = Spec { permits: 2, ..spec };
    lock("semaphore:2", two, habits, || Counting { permits: 2 });
}

#[test]
fn owner_mutex() {
    lock("owner-mutex", LOCK, OWNED, || Owned { capacity: 1 });
    let tries = Habits {
        tries: 30,
        questions: 10,
        ..OWNED
    };
    lock("owner-mutex", LOCK, tries, || Owned { capacity: 1 });
}

#[test]
fn weighted_semaphore() {
    let spec = Spec { permits: 3, ..LOCK };
    let habits = Habits {
        weights: 2,
        heaviest: 3,
        ..OWNED
    };
    lock("weighted-semaphore:3", spec, habits, || Owned {
        capacity: 3,
    });
}

#[test]
fn fenced_mutex() {
    let spec = Spec {
        fences: true,
        ..LOCK
    };
    let habits = Habits {
        fences: true,
        ..OWNED
    };
    lock("fenced-mutex", spec, habits, || FencedMutex {
        leased: false,
    });
    let leased = Spec {
        leased: true,
        ..spec
    };
    lock("fenced-mutex-leased", leased, habits, || FencedMutex {
        leased: true,
    });
}

#[test]
fn registers() {
    let distinct = Mix {
        reads: 55,
        ..Mix::default()
    };
    register("register", distinct, || Register { initial: 0 });
    let few = Mix {
        reads: 40,
        values: 3,
        ..Mix::default()
    };
    register("cas-register", few, || Register { initial: 0 });
}
