//! Peak memory of the lock-safety checks during a run, against the length of the history, which is made up as it is
//! pushed: `cargo run --release -p fencepost-checker --example live_memory -- [MILLIONS …]` (1, 5 and 10 by default).
//!
//! Eight workers take four locks in turn, read and update a register under each grant, and let go; one write in a hundred
//! and one acquire in a thousand has an unknown outcome, every fiftieth grant is claimed, every ten thousandth event is a
//! fault or its end, and the store's log comes along. Each length runs in a process of its own.

mod peak;

use std::process::Command;
use std::time::Instant;

use fencepost_checker::checks::StoreOp;
use fencepost_checker::checks::track::F;
use fencepost_checker::judge::{Live, facts::Facts};
use fencepost_history::{Event, EventType, Process, Value};

const FACTS: &str = r#"{"system":{"lease":true,"fence":true,"fifo":true,"reentrant":REENTRANT,"shared":true},
    "lease":{"ttl_ms":1000},"store":{"fenced":true},"mode":"MODE","permits":2}"#;

struct Run {
    live: Live,
    index: u64,
    /// Process id of each worker; an unknown outcome retires it.
    process: [u64; 8],
    fresh: u64,
    told: u64,
}

fn map(members: &[(&str, Value)]) -> Value {
    Value::Map(
        members
            .iter()
            .map(|(k, v)| ((*k).into(), v.clone()))
            .collect(),
    )
}

fn int(n: u64) -> Value {
    Value::Int(n.into())
}

fn text(s: String) -> Value {
    Value::Str(s.into())
}

impl Run {
    fn push(&mut self, process: Process, kind: EventType, f: &str, key: Option<u64>, value: Value) {
        let event = Event {
            index: self.index,
            time: self.index as i64 * 10_000,
            process,
            kind,
            f: f.into(),
            key: key.map(|k| format!("L{k}").into()),
            value,
            error: None,
        };
        self.told += u64::from(self.live.push(&event).is_some());
        self.index += 1;
    }

    fn call(&mut self, worker: u64, kind: EventType, f: &str, key: u64, value: Value) {
        let process = &mut self.process[worker as usize];
        let p = Process::Client(*process);
        if kind == EventType::Info {
            (*process, self.fresh) = (self.fresh, self.fresh + 1);
        }
        self.push(p, kind, f, Some(key), value);
    }

    /// One grant and an update under it.
    fn turn(&mut self, n: u64, mode: &str) {
        use EventType::{Info, Invoke, Ok};
        let (key, worker, fence) = (n % 4, n % 8, n + 1);
        let name = [("owner", text(format!("o{n}"))), ("fence", int(fence))];
        let by = |more: &[(&str, Value)]| {
            let worker = [("worker", int(worker))];
            map(&[&worker[..], &name[..], more].concat())
        };
        let asked = [
            ("worker", int(worker)),
            ("ttl_ms", int(1000)),
            ("mode", text(mode.into())),
        ];
        if n % 1000 == 999 {
            self.call(worker, Invoke, "acquire", key, map(&asked));
            self.call(worker, Info, "acquire", key, Value::Null);
            return;
        }
        self.call(worker, Invoke, "acquire", key, map(&asked));
        let granted = map(&[&name[..], &[("ttl_ms", int(1000))]].concat());
        self.call(worker, Ok, "acquire", key, granted);
        let (value, prev) = (
            text(format!("v{n}")),
            text(format!("v{}", n.wrapping_sub(4))),
        );
        self.call(worker, Invoke, "read", key, by(&[]));
        self.call(worker, Ok, "read", key, map(&[("value", prev.clone())]));
        self.call(
            worker,
            Invoke,
            "write",
            key,
            by(&[("value", value), ("prev", prev)]),
        );
        let outcome = if n % 100 == 98 { Info } else { Ok };
        self.call(worker, outcome, "write", key, Value::Null);
        self.call(worker, Invoke, "release", key, by(&[]));
        self.call(
            worker,
            Ok,
            "release",
            key,
            map(&[("held", Value::Bool(true))]),
        );
        if n.is_multiple_of(50) {
            let after = map(&[
                ("index", int(self.index)),
                ("time", int(self.index * 10_000)),
            ]);
            let claims = map(&[("grants", Value::List(Vec::new())), ("after", after)]);
            self.push(
                Process::Named(format!("w{worker}").into()),
                Info,
                "claims",
                None,
                claims,
            );
        }
        if n.is_multiple_of(1250) {
            let id = text(format!("f{n}"));
            let fault = |action: &str, status: &str| {
                let on = Value::List(vec![text(format!("worker:{worker}"))]);
                map(&[
                    ("id", id.clone()),
                    ("fault", text("pause".into())),
                    ("kind", text("pause".into())),
                    ("action", text(action.into())),
                    ("status", text(status.into())),
                    ("affects", on),
                ])
            };
            let nemesis = || Process::Named("nemesis".into());
            self.push(
                nemesis(),
                Info,
                "fault",
                None,
                fault("install", "installed"),
            );
            self.push(nemesis(), Info, "fault", None, fault("heal", "healed"));
        }
        let op = StoreOp {
            seq: n,
            f: F::Write,
            key: format!("L{key}").into(),
            resource: None,
            fence: Some(fence),
            owner: text(format!("o{n}")),
            value: text(format!("v{n}")),
            accepted: true,
        };
        self.told += u64::from(self.live.push_store(&op).is_some());
    }
}

fn one(events: u64, mode: &str) -> Result<(), Box<dyn std::error::Error>> {
    let reentrant = mode == "reentrant";
    let mode = if reentrant { "exclusive" } else { mode };
    let facts = FACTS
        .replace("MODE", mode)
        .replace("REENTRANT", &reentrant.to_string());
    let mut run = Run {
        live: Live::new(&Facts::parse(&facts)?),
        index: 0,
        process: std::array::from_fn(|i| i as u64),
        fresh: 8,
        told: 0,
    };
    let started = Instant::now();
    for n in 0.. {
        if run.index >= events {
            break;
        }
        run.turn(n, mode);
    }
    let (seconds, told) = (started.elapsed().as_secs_f64(), run.told);
    println!(
        "{} events: {seconds:.2} s, peak {} MB, {told} told",
        run.index,
        peak::megabytes()
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [first, events, mode] = &args[..]
        && first == "one"
    {
        return one(events.parse()?, mode);
    }
    let millions = match args.is_empty() {
        true => ["1", "5", "10"].map(str::to_owned).to_vec(),
        false => args,
    };
    for mode in ["exclusive", "reentrant", "shared", "semaphore"] {
        for m in &millions {
            let events = (m.parse::<f64>()? * 1e6).to_string();
            print!("{mode:<10} ");
            std::io::Write::flush(&mut std::io::stdout())?;
            Command::new(std::env::current_exe()?)
                .args(["one", &events, mode])
                .status()?;
        }
    }
    Ok(())
}
