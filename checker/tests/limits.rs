#![allow(clippy::unwrap_used)]
//! Bounds that hold: unknown tails, time limits, memory, and inputs that make no sense.

use std::time::{Duration, Instant};

use fencepost_checker::generate::{MODELS, Rng};
use fencepost_checker::{Engine, Options, Outcome, check_events};
use fencepost_history::{Event, EventType, Process, Value};

fn event(index: u64, process: u64, kind: EventType, f: &str, value: Value) -> Event {
    Event {
        index,
        time: index as i64,
        process: Process::Client(process),
        kind,
        f: f.into(),
        key: None,
        value,
        error: None,
    }
}

fn owner(name: &str, fence: Option<u64>) -> Value {
    let mut members = vec![("owner".into(), Value::Str(name.into()))];
    members.extend(fence.map(|f| ("fence".into(), Value::Int(i128::from(f)))));
    Value::Map(members)
}

/// A good start, then acquires of which nobody learns anything.
fn unknown_tail(n: u64) -> Vec<Event> {
    let mut events = vec![
        event(0, 0, EventType::Invoke, "acquire", owner("a", None)),
        event(1, 0, EventType::Ok, "acquire", owner("a", Some(1))),
        event(2, 0, EventType::Invoke, "release", owner("a", None)),
        event(3, 0, EventType::Ok, "release", owner("a", None)),
    ];
    for i in 0..n {
        events.push(event(
            4 + i,
            1 + i,
            EventType::Invoke,
            "acquire",
            owner(&format!("o{i}"), None),
        ));
    }
    events
}

#[test]
fn b05_unknown_acquires_at_the_tail() {
    for n in [10, 50, 500] {
        for model in [
            "mutex",
            "owner-mutex",
            "fenced-mutex",
            "fenced-mutex-leased",
            "semaphore:2",
        ] {
            for engine in [Engine::Fast, Engine::Search] {
                let start = Instant::now();
                let options = Options {
                    engine,
                    ..Options::default()
                };
                let report = check_events(unknown_tail(n), model, None, &options).unwrap();
                assert_eq!(report.outcome, Outcome::Linearizable, "{n} {model}");
                assert!(
                    start.elapsed() < Duration::from_secs(1),
                    "{n} {model}: {:?}",
                    start.elapsed()
                );
            }
        }
    }
}

/// Transactions, half of them unknown, over registers with few values: hard.
fn nasty(operations: u64) -> Vec<Event> {
    let mut rng = Rng(7);
    let (mut events, mut open) = (Vec::new(), Vec::new());
    let (mut index, mut process) = (0, 0);
    for _ in 0..operations {
        let v = Value::Int(rng.below(1000).into());
        let f = if rng.percent(50) {
            "enqueue"
        } else {
            "dequeue"
        };
        events.push(event(index, process, EventType::Invoke, f, v));
        open.push((process, f));
        (index, process) = (index + 1, process + 1);
        if open.len() > 24 {
            let (p, f) = open.swap_remove(rng.below(24) as usize);
            let kind = if f == "dequeue" {
                EventType::Info
            } else {
                EventType::Ok
            };
            events.push(event(index, p, kind, f, Value::Null));
            index += 1;
        }
    }
    events.push(event(
        index,
        process,
        EventType::Invoke,
        "dequeue",
        Value::Null,
    ));
    events.push(event(
        index + 1,
        process,
        EventType::Ok,
        "dequeue",
        Value::Int(-1),
    ));
    events
}

#[test]
fn a_limit_of_one_second_ends_in_time() {
    let events = nasty(400);
    let start = Instant::now();
    let options = Options {
        limit: Some(Duration::from_secs(1)),
        ..Options::default()
    };
    let report = check_events(&events, "queue", None, &options).unwrap();
    let took = start.elapsed();
    let Outcome::Unknown(spent) = report.outcome else {
        panic!("answered: make it nastier")
    };
    assert!(spent.states > 0 && spent.prefix.is_some(), "{spent:?}");
    // 1.2 s is the bar on a quiet machine; tests may share theirs.
    assert!(took < Duration::from_millis(1800), "{took:?}");
}

#[test]
fn bounds_on_states_and_memory_hold() {
    let events = nasty(400);
    let options = Options {
        max_states: Some(50_000),
        ..Options::default()
    };
    let one = check_events(&events, "queue", None, &options)
        .unwrap()
        .outcome;
    let Outcome::Unknown(spent) = &one else {
        panic!("answered: make it nastier")
    };
    assert!(spent.states < 80_000, "{spent:?}");
    let options = Options {
        memory: 8 << 20,
        ..Options::default()
    };
    let Outcome::Unknown(spent) = check_events(&events, "queue", None, &options)
        .unwrap()
        .outcome
    else {
        panic!("answered: make it nastier")
    };
    assert!(spent.reason.contains("memory"), "{spent:?}");
}

/// Anything at all, in any order: a verdict or an error, never a panic.
#[test]
fn no_input_panics() {
    let words = [
        "acquire", "release", "held", "read", "write", "cas", "get", "append", "put", "txn",
        "enqueue", "dequeue", "add", "x",
    ];
    let mut decided = 0;
    for seed in 0..4000 {
        let mut rng = Rng(seed);
        let few = rng.percent(70);
        let mut events = Vec::new();
        for i in 0..rng.below(14) {
            let kinds = [
                EventType::Invoke,
                EventType::Ok,
                EventType::Fail,
                EventType::Info,
            ];
            let word = words[rng.below(if few { 3 } else { words.len() as u64 }) as usize];
            let value = match rng.below(6) {
                0 => Value::Null,
                1 => Value::Int(i128::from(rng.bits())),
                2 => Value::List(vec![Value::Int(1), Value::Int(rng.below(3).into())]),
                3 => Value::Bool(rng.percent(50)),
                _ => owner(
                    ["a", "b"][rng.below(2) as usize],
                    Some([rng.below(4), u64::MAX][rng.below(2) as usize]),
                ),
            };
            let index = if rng.percent(95) {
                i * 3
            } else {
                [rng.below(40), u64::MAX][rng.below(2) as usize]
            };
            let mut e = event(
                index,
                rng.below(3),
                kinds[rng.below(4) as usize],
                word,
                value,
            );
            e.error = rng.percent(30).then(|| "busy".into());
            events.push(e);
        }
        if rng.percent(70) {
            // Make it pair up: a completion for every second event.
            for pair in events.chunks_mut(2) {
                if let [a, b] = pair {
                    a.kind = EventType::Invoke;
                    if b.kind == EventType::Invoke {
                        b.kind = EventType::Ok;
                    }
                    (b.process, b.f) = (a.process.clone(), a.f.clone());
                }
            }
        }
        for model in MODELS {
            let options = Options {
                engine: Engine::Both,
                max_states: Some(100_000),
                ..Options::default()
            };
            decided += u32::from(check_events(&events, model, None, &options).is_ok());
        }
    }
    assert!(decided > 1000, "{decided}");
}
