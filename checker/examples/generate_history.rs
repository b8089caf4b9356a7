//! Writes a good history of any length, for measurements:
//!
//! `cargo run --release -p fencepost-checker --example generate_history -- EVENTS FILE.jsonl[.gz]` writes operations
//! of a fenced mutex (10 clients, 1 % unknown outcomes);
//! `… -- EVENTS DIR` writes a run folder with leases, claims, updates of a fenced store, and the store's log.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use fencepost_checker::generate::events::of_lock;
use fencepost_checker::generate::locks::{Habits, LockClients};
use fencepost_checker::generate::{Rng, Shape, history};
use fencepost_checker::models::lock::{Answer, LockOp};
use fencepost_checker::models::locks::FencedMutex;
use fencepost_checker::{NEVER, Timed};
use fencepost_history::Writer;
use flate2::Compression;
use flate2::write::GzEncoder;

/// Events of one update under one grant.
const CYCLE: u64 = 8;
const KEYS: u64 = 4;

fn out(path: &Path) -> io::Result<Box<dyn Write>> {
    let file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    Ok(match path.extension().is_some_and(|e| e == "gz") {
        true => Box::new(BufWriter::new(GzEncoder::new(file, Compression::fast()))),
        false => Box::new(file),
    })
}

fn mutex(events: u64, path: &Path) -> io::Result<()> {
    let habits = Habits {
        owners: true,
        fences: true,
        sweeps: 60,
        ..Habits::default()
    };
    let shape = Shape {
        clients: 10,
        operations: events / 2 + events / 150,
        unknown: 0,
        lag: 30,
    };
    let mut clients = LockClients::new(FencedMutex { leased: false }, habits, 10);
    let mut ops = history(&mut clients, shape, &mut Rng(1));
    forget(&mut ops, shape.clients);
    let mut out = Writer::new(out(path)?);
    for event in of_lock(&ops).take(events as usize) {
        out.write(&event)?;
    }
    out.flush()
}

/// Loses one answer in a hundred; the client goes on as another process.
fn forget(ops: &mut [Timed<LockOp>], clients: u64) {
    let mut rng = Rng(2);
    let mut process: Vec<u64> = (0..clients).collect();
    let mut fresh = clients;
    for o in ops {
        let client = &mut process[o.op.owner as usize];
        o.process = *client;
        if rng.percent(1) && o.ret != NEVER {
            (o.ret, o.op.answer) = (NEVER, Answer::Unknown);
            o.op.fence = None;
            (*client, fresh) = (fresh, fresh + 1);
        }
    }
}

/// One worker after the other takes each key, updates its register, and lets go; every hundredth write is of
/// unknown outcome, and every fiftieth grant has a claim.
fn folder(events: u64, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::write(
        dir.join("run.json"),
        r#"{"format":1,"system":{"name":"made","lease":true,"fence":true},"lease":{"ttl_ms":1000},"store":{"fenced":true}}"#,
    )?;
    let mut out = out(&dir.join("history.jsonl"))?;
    let mut log = BufWriter::new(File::create(dir.join("store.jsonl"))?);
    let (mut index, mut fresh): (u64, u64) = (0, 8);
    let mut process: Vec<u64> = (0..8).collect();
    let mut last = vec!["null".to_owned(); KEYS as usize];
    for n in 0..events / CYCLE {
        let (key, worker, fence) = (n % KEYS, n % 8, n + 1);
        let owner = format!(r#""owner":"o{n}","fence":{fence}"#);
        let unknown = n % 100 == 99;
        let update = format!(
            r#"{{"worker":{worker},{owner},"value":"v{n}","prev":{}}}"#,
            last[key as usize]
        );
        let write = if unknown { "info" } else { "ok" };
        let steps = [
            (
                "invoke",
                "acquire",
                format!(r#"{{"worker":{worker},"ttl_ms":1000}}"#),
            ),
            ("ok", "acquire", format!(r#"{{{owner},"ttl_ms":1000}}"#)),
            (
                "invoke",
                "read",
                format!(r#"{{"worker":{worker},{owner}}}"#),
            ),
            (
                "ok",
                "read",
                format!(r#"{{"value":{}}}"#, last[key as usize]),
            ),
            ("invoke", "write", update),
            (write, "write", "null".into()),
            (
                "invoke",
                "release",
                format!(r#"{{"worker":{worker},{owner}}}"#),
            ),
            ("ok", "release", r#"{"held":true}"#.into()),
        ];
        for (kind, f, value) in steps {
            let p = process[worker as usize];
            let time = index * 10_000;
            writeln!(
                out,
                r#"{{"index":{index},"time":{time},"process":{p},"type":"{kind}","f":"{f}","key":"L{key}","value":{value}}}"#
            )?;
            index += 1;
            if kind == "info" {
                process[worker as usize] = fresh;
                fresh += 1;
            }
        }
        if n % 50 == 0 {
            let after = format!(r#""after":{{"index":{index},"time":{}}}"#, index * 10_000);
            writeln!(
                out,
                r#"{{"index":{index},"time":{},"process":"w{worker}","type":"info","f":"claims","value":{{"grants":[],{after}}}}}"#,
                index * 10_000
            )?;
            index += 1;
        }
        writeln!(
            log,
            r#"{{"seq":{n},"op":"write","key":"L{key}",{owner},"value":"v{n}","accepted":true}}"#
        )?;
        last[key as usize] = format!(r#""v{n}""#);
    }
    out.flush()?;
    log.flush()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "give a number of events and a file (.jsonl, .jsonl.gz) or a folder";
    let events: u64 = args.next().ok_or(usage)?.parse()?;
    let path = args.next().ok_or(usage)?;
    let path = Path::new(&path);
    match path.extension() {
        Some(_) => mutex(events, path)?,
        None => folder(events, path)?,
    }
    Ok(())
}
