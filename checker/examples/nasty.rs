//! Histories made to overrun a time limit, each checked with a limit of one second; prints how long each took.
//! `cargo run --release -p fencepost-checker --example nasty`

use std::time::{Duration, Instant};

use fencepost_checker::generate::Rng;
use fencepost_checker::{Engine, Options, Outcome, check_events};
use fencepost_history::{Event, EventType, Process, Value};

struct Make {
    events: Vec<Event>,
    processes: u64,
    rng: Rng,
}

impl Make {
    fn new() -> Make {
        Make {
            events: Vec::new(),
            processes: 0,
            rng: Rng(7),
        }
    }

    fn push(&mut self, p: u64, kind: EventType, f: &str, value: Value) {
        let index = self.events.len() as u64;
        self.events.push(Event {
            index,
            time: index as i64,
            process: Process::Client(p),
            kind,
            f: f.into(),
            key: Some("k".into()),
            value,
            error: None,
        });
    }

    fn call(&mut self, f: &str, value: Value) -> u64 {
        self.processes += 1;
        let p = self.processes;
        self.push(p, EventType::Invoke, f, value);
        p
    }

    /// `width` calls are pending at any time; then a read that nothing explains.
    fn pending(
        mut self,
        operations: u64,
        width: usize,
        mut op: impl FnMut(&mut Rng) -> (&'static str, Value, EventType, Value),
        last: (&str, Value),
    ) -> Vec<Event> {
        let mut open = Vec::new();
        for n in 0..operations {
            let (f, value, kind, answer) = op(&mut self.rng);
            let p = self.call(f, value);
            open.push((p, f, kind, answer));
            let left = operations - n;
            while open.len() > width || (left < open.len() as u64 && !open.is_empty()) {
                let at = self.rng.below(open.len() as u64) as usize;
                let (p, f, kind, answer) = open.swap_remove(at);
                self.push(p, kind, f, answer);
            }
        }
        let ask = if last.0 == "txn" {
            last.1.clone()
        } else {
            Value::Null
        };
        let p = self.call(last.0, ask);
        self.push(p, EventType::Ok, last.0, last.1);
        self.events
    }
}

fn int(n: u64) -> Value {
    Value::Int(n.into())
}

fn text(n: usize) -> Value {
    Value::Str("x".repeat(n).into())
}

fn cases() -> Vec<(&'static str, &'static str, Engine, Vec<Event>)> {
    use EventType::{Info, Ok};
    let queue = |r: &mut Rng| match r.percent(50) {
        true => ("enqueue", int(r.below(1000)), Ok, Value::Null),
        false => ("dequeue", Value::Null, Info, Value::Null),
    };
    let write = |r: &mut Rng| {
        let v = int(r.below(3));
        match r.percent(60) {
            true => ("write", v, Ok, Value::Null),
            false => {
                let pair = Value::List(vec![v, int(r.below(3))]);
                (
                    "cas",
                    pair.clone(),
                    if r.percent(50) { Ok } else { Info },
                    pair,
                )
            }
        }
    };
    let long = |r: &mut Rng| {
        (
            "append",
            text(20_000 + r.below(9) as usize),
            Ok,
            Value::Null,
        )
    };
    let append = |r: &mut Rng| {
        let v = Value::Str(format!("{},", r.below(50)).into());
        (
            "append",
            v,
            if r.percent(80) { Ok } else { Info },
            Value::Null,
        )
    };
    let add = |r: &mut Rng| ("add", int(r.below(5000)), Info, Value::Null);
    let lock = |r: &mut Rng| match r.percent(50) {
        true => (
            "acquire",
            Value::Null,
            if r.percent(60) { Ok } else { Info },
            Value::Null,
        ),
        false => ("release", Value::Null, Info, Value::Null),
    };
    let txn = |r: &mut Rng| {
        let one = |f: &str, k: u64, v: Value| Value::List(vec![Value::Str(f.into()), int(k), v]);
        let ops = (0..3)
            .map(|_| one("w", r.below(6), int(r.below(9))))
            .collect();
        let list = Value::List(ops);
        ("txn", list.clone(), Ok, list)
    };
    let bad_txn = Value::List(vec![Value::List(vec![
        Value::Str("r".into()),
        int(1),
        int(77),
    ])]);
    let mut seen = 0;
    let distinct = move |_: &mut Rng| {
        seen += 1;
        ("write", int(seen), Ok, Value::Null)
    };
    let (auto, search) = (Engine::Auto, Engine::Search);
    vec![
        (
            "queue, 24 pending",
            "queue",
            auto,
            Make::new().pending(400, 24, queue, ("dequeue", int(9999))),
        ),
        (
            "queue, 2000 pending",
            "queue",
            auto,
            Make::new().pending(9000, 2000, queue, ("dequeue", int(9999))),
        ),
        (
            "cas, 60 pending",
            "cas-register",
            auto,
            Make::new().pending(9000, 60, write, ("read", int(9))),
        ),
        (
            "cas, 3000 pending",
            "cas-register",
            auto,
            Make::new().pending(40_000, 3000, write, ("read", int(9))),
        ),
        (
            "appends of 20 kB",
            "kv",
            auto,
            Make::new().pending(3000, 30, long, ("get", text(5))),
        ),
        (
            "appends, 200 pending",
            "kv",
            auto,
            Make::new().pending(5000, 200, append, ("get", text(5))),
        ),
        (
            "appends, one of many",
            "kv",
            auto,
            Make::new().pending(200_000, 10, append, ("get", text(5))),
        ),
        (
            "set, all unknown",
            "set",
            auto,
            Make::new().pending(5000, 100, add, ("read", Value::List(vec![int(9999)]))),
        ),
        (
            "mutex by search",
            "mutex",
            search,
            Make::new().pending(4000, 300, lock, ("held", Value::Bool(true))),
        ),
        (
            "transactions",
            "multi-register",
            auto,
            Make::new().pending(4000, 40, txn, ("txn", bad_txn)),
        ),
        (
            "3 million writes",
            "register",
            auto,
            Make::new().pending(1_500_000, 10, distinct, ("read", int(0))),
        ),
        (
            "the same by search",
            "register",
            search,
            Make::new().pending(1_500_000, 10, distinct, ("read", int(0))),
        ),
    ]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut worst: f64 = 0.0;
    for (name, model, engine, events) in cases() {
        let options = Options {
            engine,
            limit: Some(Duration::from_secs(1)),
            ..Options::default()
        };
        let started = Instant::now();
        let answer = match check_events(
            &events,
            model,
            Some(&int(0)).filter(|_| model.ends_with("register")),
            &options,
        ) {
            Ok(report) => match report.outcome {
                Outcome::Linearizable => "linearizable".to_owned(),
                Outcome::Violated(_) => "violated".to_owned(),
                Outcome::Unknown(s) => format!("unknown: {}, {} states", s.reason, s.states),
            },
            Err(e) => e.to_string(),
        };
        let took = started.elapsed().as_secs_f64();
        worst = worst.max(took);
        println!(
            "{name:<22} {:>8} events  {took:>6.3} s  {answer}",
            events.len()
        );
    }
    println!("longest {worst:.3} s");
    Ok(())
}
