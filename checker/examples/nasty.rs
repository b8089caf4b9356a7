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
        op: &dyn Fn(&mut Rng) -> Op,
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

/// A call, its value, how it ends, and its answer.
type Op = (&'static str, Value, EventType, Value);

struct Case {
    name: &'static str,
    model: &'static str,
    engine: Engine,
    events: Vec<Event>,
}

/// `operations` calls, `width` of them pending at any time, then one with an answer that nothing explains.
fn case(
    name: &'static str,
    model: &'static str,
    (operations, width): (u64, usize),
    op: &dyn Fn(&mut Rng) -> Op,
    last: (&str, Value),
) -> Case {
    Case {
        name,
        model,
        engine: Engine::Auto,
        events: Make::new().pending(operations, width, op, last),
    }
}

fn either(r: &mut Rng, percent: u64) -> EventType {
    if r.percent(percent) {
        EventType::Ok
    } else {
        EventType::Info
    }
}

fn queue(r: &mut Rng) -> Op {
    match r.percent(50) {
        true => ("enqueue", int(r.below(1000)), EventType::Ok, Value::Null),
        false => ("dequeue", Value::Null, EventType::Info, Value::Null),
    }
}

fn write(r: &mut Rng) -> Op {
    let v = int(r.below(3));
    if r.percent(60) {
        return ("write", v, EventType::Ok, Value::Null);
    }
    let pair = Value::List(vec![v, int(r.below(3))]);
    ("cas", pair.clone(), either(r, 50), pair)
}

fn long(r: &mut Rng) -> Op {
    let v = text(20_000 + r.below(9) as usize);
    ("append", v, EventType::Ok, Value::Null)
}

fn append(r: &mut Rng) -> Op {
    let v = Value::Str(format!("{},", r.below(50)).into());
    ("append", v, either(r, 80), Value::Null)
}

fn add(r: &mut Rng) -> Op {
    ("add", int(r.below(5000)), EventType::Info, Value::Null)
}

fn lock(r: &mut Rng) -> Op {
    match r.percent(50) {
        true => ("acquire", Value::Null, either(r, 60), Value::Null),
        false => ("release", Value::Null, EventType::Info, Value::Null),
    }
}

fn txn(r: &mut Rng) -> Op {
    let mut one = || {
        let (register, value) = (int(r.below(6)), int(r.below(9)));
        Value::List(vec![Value::Str("w".into()), register, value])
    };
    let all = Value::List(vec![one(), one(), one()]);
    ("txn", all.clone(), EventType::Ok, all)
}

fn distinct(r: &mut Rng) -> Op {
    let v = int(r.bits() >> 1);
    ("write", v, EventType::Ok, Value::Null)
}

fn cases() -> Vec<Case> {
    let by_search = |case: Case| Case {
        engine: Engine::Search,
        ..case
    };
    let never = || ("dequeue", int(9999));
    let nine = || ("read", int(9));
    let short = || ("get", text(5));
    let missing = ("read", Value::List(vec![int(9999)]));
    let read = Value::List(vec![Value::Str("r".into()), int(1), int(77)]);
    let read = ("txn", Value::List(vec![read]));
    let held = ("held", Value::Bool(true));
    let old = || ("read", int(0));
    let many = (1_500_000, 10);
    vec![
        case("queue, 24 pending", "queue", (400, 24), &queue, never()),
        case(
            "queue, 2000 pending",
            "queue",
            (9000, 2000),
            &queue,
            never(),
        ),
        case(
            "cas, 60 pending",
            "cas-register",
            (9000, 60),
            &write,
            nine(),
        ),
        case(
            "cas, 3000 pending",
            "cas-register",
            (40_000, 3000),
            &write,
            nine(),
        ),
        case("appends of 20 kB", "kv", (3000, 30), &long, short()),
        case("appends, 200 pending", "kv", (5000, 200), &append, short()),
        case(
            "appends, one of many",
            "kv",
            (200_000, 10),
            &append,
            short(),
        ),
        case("set, all unknown", "set", (5000, 100), &add, missing),
        by_search(case("mutex by search", "mutex", (4000, 300), &lock, held)),
        case("transactions", "multi-register", (4000, 40), &txn, read),
        case("3 million writes", "register", many, &distinct, old()),
        by_search(case(
            "the same by search",
            "register",
            many,
            &distinct,
            old(),
        )),
    ]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut worst, mut by) = (0.0, "");
    for case in cases() {
        let options = Options {
            engine: case.engine,
            limit: Some(Duration::from_secs(1)),
            ..Options::default()
        };
        let initial = int(0);
        let initial = case.model.ends_with("register").then_some(&initial);
        let started = Instant::now();
        let answer = match check_events(&case.events, case.model, initial, &options) {
            Ok(report) => match report.outcome {
                Outcome::Linearizable => "linearizable".to_owned(),
                Outcome::Violated(_) => "violated".to_owned(),
                Outcome::Unknown(s) => {
                    let mb = s.bytes >> 20;
                    format!("unknown: {}, {} states, {mb} MB", s.reason, s.states)
                }
            },
            Err(e) => e.to_string(),
        };
        let took = started.elapsed().as_secs_f64();
        if took > worst {
            (worst, by) = (took, case.name);
        }
        println!(
            "{:<22} {:>8} events  {took:>6.3} s  {answer}",
            case.name,
            case.events.len()
        );
    }
    println!("longest: {worst:.3} s, {by}");
    Ok(())
}
