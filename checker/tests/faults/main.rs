//! Good histories with injected faults, as events from end to end: every one that an independent oracle calls illegal is
//! found, none that it calls legal, and every witness is illegal to the oracle too: by itself, or, where a search's
//! window begins later, from the states that it names and from all that what came before allows.
//!
//! `FENCEPOST_CASES=10000 cargo test --release -p fencepost-checker --test faults -- --nocapture` sets the number of
//! illegal ones wanted of each model.
#![allow(clippy::unwrap_used)]

mod clients;
mod locks;
mod objects;
mod oracle;
mod witness;

use fencepost_checker::generate::events::of_lock;
use fencepost_checker::generate::locks::{Habits, LockClients, perturb};
use fencepost_checker::generate::{Rng, Shape, history};
use fencepost_checker::models::lock::LockOp;
use fencepost_checker::models::locks::{Counting, FencedMutex, Owned, Reentrant, ReentrantFenced};
use fencepost_checker::{Engine, Model, Options, Outcome, check_events};
use fencepost_history::{Event, EventType, Value};
use locks::{LOCK, Lock};
use objects::Kind;
use oracle::{Object, legal, operations, show};
use witness::Stands;

fn wanted() -> u64 {
    let cases = std::env::var("FENCEPOST_CASES").ok();
    cases.and_then(|s| s.parse().ok()).unwrap_or(120)
}

/// Every fourth history is long and narrow, so that a search's window can begin late.
fn shape(rng: &mut Rng) -> Shape {
    let long = rng.percent(25);
    Shape {
        clients: if long { 2 } else { 2 + rng.below(3) },
        operations: if long {
            12 + rng.below(10)
        } else {
            4 + rng.below(7)
        },
        unknown: [0, 10, 25][rng.below(if long { 2 } else { 3 }) as usize],
        lag: 30 + rng.below(40),
    }
}

/// Runs seeds until enough histories were illegal; `make` gives a history of a seed.
fn hunt<O: Object>(model: &str, object: &O, make: impl Fn(&mut Rng) -> Vec<Event>) {
    let (mut illegal, mut fine, mut alone, mut later, mut seed) = (0, 0, 0, 0, 0u64);
    let register = model.ends_with("register") || model == "fenced-register:raise";
    let start = Some(&Value::Int(0)).filter(|_| register);
    while illegal < wanted() {
        seed += 1;
        assert!(seed < 400 * wanted(), "{model}: too few faults");
        let events = make(&mut Rng(seed));
        let ops = operations(&events);
        // Where everything failed there is nothing to judge.
        if ops.iter().all(|o| o.failed) {
            continue;
        }
        let good = legal(object, &ops, &[object.start()]);
        let options = Options {
            engine: [Engine::Auto, Engine::Both, Engine::Search][(seed % 3) as usize],
            parallel: false,
            ..Options::default()
        };
        let report = match check_events(&events, model, start, &options) {
            Ok(report) => report,
            Err(e) => panic!("{model}, seed {seed}: {e}\n{}", show(&ops)),
        };
        match report.outcome {
            Outcome::Linearizable => assert!(good, "{model}, seed {seed}: missed\n{}", show(&ops)),
            Outcome::Violated(why) => {
                assert!(
                    !good,
                    "{model}, seed {seed}: {why:?} is none\n{}",
                    show(&ops)
                );
                match witness::confirm(object, &events, &why) {
                    Ok(Stands::Alone) => alone += 1,
                    Ok(Stands::AfterStates) => later += 1,
                    Err(e) => panic!("{model}, seed {seed}: {e}\n{why:?}\n{}", show(&ops)),
                }
            }
            Outcome::Unknown(s) => panic!("{model}, seed {seed}: unknown, {}", s.reason),
        }
        match good {
            true => fine += 1,
            false => illegal += 1,
        }
    }
    eprintln!(
        "{model}: {illegal} illegal, all found; {fine} legal, none flagged; witnesses illegal alone: {alone}, \
         from the states before: {later}"
    );
}

fn lock<M: Model<Op = LockOp>>(model: &str, spec: Lock, habits: Habits, object: impl Fn() -> M) {
    hunt(model, &spec, |rng| {
        let shape = shape(rng);
        let mut clients = LockClients::new(object(), habits, shape.clients);
        let mut ops = history(&mut clients, shape, rng);
        for _ in 0..rng.below(4) {
            perturb(&mut ops, &habits, rng);
        }
        // Faults may make calls of one client overlap: each gets a process of its own.
        for (process, o) in (0..).zip(&mut ops) {
            o.process = process;
        }
        let mut events: Vec<Event> = of_lock(&ops).collect();
        if spec.modes {
            events.iter_mut().for_each(mode_of_weight);
        }
        events
    });
}

/// What takes everything is exclusive, all else is shared.
fn mode_of_weight(e: &mut Event) {
    let Value::Map(members) = &mut e.value else {
        return;
    };
    let all = |v: &Value| v.as_u64() >= Some(1000);
    let exclusive = members.iter().any(|(n, v)| &**n == "weight" && all(v));
    members.retain(|(n, _)| &**n != "weight");
    if &*e.f == "acquire" && e.kind == EventType::Invoke && !exclusive {
        members.push(("mode".into(), Value::Str("shared".into())));
    }
}

fn object(model: &str, kind: Kind) {
    hunt(model, &kind, |rng| {
        let s = shape(rng);
        let mut events = clients::history(kind, s.clients, s.operations, s.unknown / 2, rng);
        for _ in 0..rng.below(3) {
            clients::inject(kind, &mut events, rng);
        }
        events
    });
}

#[test]
fn mutex_and_semaphore() {
    let spec = Lock {
        owners: false,
        ..LOCK
    };
    let habits = Habits {
        owners: false,
        ..Habits::owned()
    };
    let tries = Habits {
        tries: 30,
        questions: 10,
        ..habits
    };
    lock("mutex", spec, habits, || Counting { permits: 1 });
    lock("mutex", spec, tries, || Counting { permits: 1 });
    let two = Lock { permits: 2, ..spec };
    lock("semaphore:2", two, habits, || Counting { permits: 2 });
}

#[test]
fn owner_mutex() {
    let make = || Owned { capacity: 1 };
    lock("owner-mutex", LOCK, Habits::owned(), make);
    let tries = Habits {
        tries: 30,
        questions: 10,
        ..Habits::owned()
    };
    lock("owner-mutex", LOCK, tries, make);
}

#[test]
fn weights_and_modes() {
    let spec = Lock { permits: 3, ..LOCK };
    let habits = Habits {
        weights: 2,
        heaviest: 3,
        tries: 15,
        ..Habits::owned()
    };
    lock("weighted-semaphore:3", spec, habits, || Owned {
        capacity: 3,
    });
    let shared = Lock {
        permits: 1000,
        modes: true,
        ..LOCK
    };
    let habits = Habits {
        heaviest: 1000,
        ..habits
    };
    lock("shared", shared, habits, || Owned { capacity: 1000 });
}

#[test]
fn fenced_mutex() {
    let spec = Lock {
        fences: true,
        ..LOCK
    };
    let leased = Lock {
        leased: true,
        ..spec
    };
    let habits = Habits {
        fences: true,
        ..Habits::owned()
    };
    let named = Habits {
        named_release: true,
        ..habits
    };
    for habits in [habits, named] {
        lock("fenced-mutex", spec, habits, || FencedMutex {
            leased: false,
        });
        lock("fenced-mutex-leased", leased, habits, || FencedMutex {
            leased: true,
        });
    }
}

#[test]
fn reentrant() {
    let habits = Habits {
        again: 35,
        tries: 20,
        revocations: 3,
        ..Habits::owned()
    };
    let spec = Lock { again: 2, ..LOCK };
    lock("reentrant:2", spec, habits, || Reentrant { limit: 2 });
    let spec = Lock {
        again: i128::MAX,
        fences: true,
        ..LOCK
    };
    for raise in [false, true] {
        let habits = Habits {
            fences: true,
            keep: !raise,
            ..habits
        };
        let model = if raise {
            "reentrant-fenced:raise"
        } else {
            "reentrant-fenced:keep"
        };
        lock(model, Lock { raise, ..spec }, habits, || ReentrantFenced {
            raise,
        });
    }
}

#[test]
fn registers() {
    object("register", Kind::Register { cas: false });
    object("cas-register", Kind::Register { cas: true });
}

#[test]
fn fenced_registers() {
    object("fenced-register", Kind::Fenced { raise: false });
    object("fenced-register:raise", Kind::Fenced { raise: true });
}

#[test]
fn key_value_store() {
    object("kv", Kind::Kv);
}

#[test]
fn queue_and_set() {
    object("queue", Kind::Queue);
    object("set", Kind::Set);
}

#[test]
fn transactions() {
    object("multi-register", Kind::Transactions);
}
