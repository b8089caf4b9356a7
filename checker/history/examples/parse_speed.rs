//! Events per second of the JSONL reader on one core:
//! `cargo run --release -p fencepost-history --example parse_speed -- [EVENTS | FILE]`

use std::path::Path;
use std::time::Instant;

use fencepost_history::{Event, EventType, Process, Reader, Value, json};

fn event(n: u64) -> Event {
    let cycle = n / 4;
    let owner = || Value::Str(format!("{:020x}", cycle.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into());
    let fence = || Value::Int(i128::from(cycle + 1));
    let worker = ("worker".into(), Value::Int(i128::from(cycle % 8)));
    let (kind, f, value) = match n % 4 {
        0 => (
            EventType::Invoke,
            "acquire",
            vec![worker, ("mode".into(), Value::Str("exclusive".into()))],
        ),
        1 => (
            EventType::Ok,
            "acquire",
            vec![("owner".into(), owner()), ("fence".into(), fence())],
        ),
        2 => (
            EventType::Invoke,
            "release",
            vec![worker, ("owner".into(), owner()), ("fence".into(), fence())],
        ),
        _ => (
            EventType::Ok,
            "release",
            vec![("held".into(), Value::Bool(true))],
        ),
    };
    Event {
        index: n,
        time: n as i64 * 1000,
        process: Process::Client(cycle % 8),
        kind,
        f: f.into(),
        key: Some("L0".into()),
        value: Value::Map(value),
        error: None,
    }
}

fn main() {
    let arg = std::env::args().nth(1).unwrap_or_else(|| "1000000".into());
    let (reader, bytes) = match arg.parse::<u64>() {
        Ok(events) => {
            let mut text = Vec::new();
            for n in 0..events {
                json::write_event(&mut text, &event(n));
            }
            let bytes = text.len();
            (Reader::from_bytes(text), bytes)
        }
        Err(_) => (Reader::open(Path::new(&arg)), 0),
    };
    let started = Instant::now();
    let result = reader.and_then(|r| r.map(|r| r.map(|_| 1u64)).sum::<Result<u64, _>>());
    let took = started.elapsed().as_secs_f64();
    match result {
        Ok(n) => println!(
            "{n} events, {bytes} bytes in {took:.2} s: {:.2} million events/s",
            n as f64 / took / 1e6
        ),
        Err(e) => eprintln!("{e}"),
    }
}
