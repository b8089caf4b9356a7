//! `cargo bench -p fencepost-checker`: near-linear checkers and search on generated histories, decoding and pairing
//! included; reading JSON lines; the lock-safety checks of a running test. Throughput is in events.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fencepost_checker::generate::events::{of_lock, of_register};
use fencepost_checker::generate::locks::{Habits, LockClients};
use fencepost_checker::generate::registers::{Mix, RegClients};
use fencepost_checker::generate::{Rng, Shape, history};
use fencepost_checker::judge::{Live, facts::Facts};
use fencepost_checker::models::locks::FencedMutex;
use fencepost_checker::models::register::Register;
use fencepost_checker::{Options, Outcome, check_events};
use fencepost_history::{Event, Value, json, read_bytes};

fn shape(operations: u64, unknown: u64) -> Shape {
    Shape {
        clients: 10,
        operations,
        unknown,
        lag: 30,
    }
}

fn lock(operations: u64) -> Vec<Event> {
    let habits = Habits {
        owners: true,
        fences: true,
        sweeps: 60,
        ..Habits::default()
    };
    let mut clients = LockClients::new(FencedMutex { leased: false }, habits, 10);
    of_lock(&history(&mut clients, shape(operations, 0), &mut Rng(1))).collect()
}

fn register(operations: u64, mix: Mix) -> Vec<Event> {
    let mut clients = RegClients::new(Register { initial: 0 }, mix);
    of_register(&history(&mut clients, shape(operations, 1), &mut Rng(1))).collect()
}

fn models(c: &mut Criterion) {
    let distinct = Mix {
        reads: 50,
        ..Mix::default()
    };
    let few = Mix {
        reads: 40,
        cas: 20,
        values: 5,
        ..Mix::default()
    };
    let mut group = c.benchmark_group("check");
    group.sample_size(20);
    for (name, model, events) in [
        ("fast/fenced-mutex", "fenced-mutex", lock(20_000)),
        ("fast/register", "register", register(20_000, distinct)),
        ("search/cas-register", "cas-register", register(2_000, few)),
    ] {
        group.throughput(Throughput::Elements(events.len() as u64));
        group.bench_function(name, |b| {
            b.iter(|| {
                let start = Some(&Value::Int(0)).filter(|_| model != "fenced-mutex");
                let report = check_events(&events, model, start, &Options::default());
                assert!(report.is_ok_and(|r| r.outcome == Outcome::Linearizable));
            });
        });
    }
    group.finish();
}

fn events(c: &mut Criterion) {
    let events = lock(20_000);
    let mut text = Vec::new();
    for e in &events {
        json::write_event(&mut text, e);
    }
    let facts = Facts::parse(r#"{"system":{"fence":true}}"#).expect("valid facts");
    let mut group = c.benchmark_group("event");
    group.sample_size(20);
    group.throughput(Throughput::Elements(events.len() as u64));
    group.bench_function("read-jsonl", |b| {
        b.iter(|| read_bytes(black_box(text.clone())).map(|h| h.events.len()));
    });
    group.bench_function("live-checks", |b| {
        b.iter(|| {
            let mut live = Live::new(&facts);
            events.iter().filter_map(|e| live.push(e)).count()
        });
    });
    group.finish();
}

criterion_group!(benches, models, events);
criterion_main!(benches);
