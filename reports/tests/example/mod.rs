//! A run folder made by hand: the Kleppmann pause on an unfenced store, with a
//! background load. Small, deterministic, and true to docs/history-format.md.

#![allow(dead_code, clippy::unwrap_used)]

mod files;

use std::path::Path;

use serde_json::{Value, json};

pub const MS: i64 = 1_000_000;
const TTL: i64 = 2_000 * MS;

/// A run in the making: events without index, sorted by time at the end.
pub struct Example {
    /// Name of the lock that the story is about.
    pub lock: String,
    pub events: Vec<(i64, Value)>,
    pub store: Vec<(i64, Value)>,
    seed: u64,
}

impl Example {
    /// Worker 0 is paused past its lease with fence 33 and writes after fence 34.
    pub fn kleppmann(lock: &str) -> Example {
        let mut run = Example {
            lock: lock.to_string(),
            events: Vec::new(),
            store: Vec::new(),
            seed: 7,
        };
        run.frame();
        run.load();
        run.story();
        run.events.sort_by_key(|(t, _)| *t);
        run.store.sort_by_key(|(t, _)| *t);
        run
    }

    fn random(&mut self, below: i64) -> i64 {
        self.seed = self
            .seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.seed >> 33) as i64 % below
    }

    pub fn named(&mut self, at: i64, process: &str, f: &str, key: Option<&str>, value: Value) {
        let event = json!({"process": process, "type": "info", "f": f, "key": key, "value": value});
        self.events.push((at, event));
    }

    /// An operation on a lock, (`f`, `key`), from `span.0` to `span.1`; `Err` answers `fail`.
    fn op(
        &mut self,
        span: (i64, i64),
        process: u64,
        what: (&str, &str),
        ask: Value,
        answer: Result<Value, &str>,
    ) {
        let (f, key) = what;
        let ask = json!({"process": process, "type": "invoke", "f": f, "key": key, "value": ask});
        self.events.push((span.0, ask));
        let done = match answer {
            Ok(value) => {
                json!({"process": process, "type": "ok", "f": f, "key": key, "value": value})
            }
            Err(error) => {
                json!({"process": process, "type": "fail", "f": f, "key": key, "error": error})
            }
        };
        self.events.push((span.1, done));
    }

    /// An operation (`op`, `key`) that the store accepted under (`owner`, `fence`).
    fn accept(
        &mut self,
        at: i64,
        what: (&str, &str),
        grant: (&str, u64),
        value: &str,
        highest: u64,
    ) {
        let entry = json!({"op": what.0, "key": what.1, "owner": grant.0, "fence": grant.1,
            "value": value, "accepted": true, "highest": highest});
        self.store.push((at, entry));
    }

    fn frame(&mut self) {
        for (at, phase) in [
            (0, "setup"),
            (400 * MS, "load"),
            (9_000 * MS, "faults-end"),
            (9_001 * MS, "healed"),
            (12_000 * MS, "drain"),
            (12_200 * MS, "final"),
            (12_400 * MS, "end"),
        ] {
            self.named(at, "controller", "phase", None, json!({"phase": phase}));
        }
        for worker in 0..3_u64 {
            for tick in 0..120 {
                let at = (tick * 100 + worker as i64 * 7) * MS;
                let paused = worker == 0 && (6_260 * MS..8_760 * MS).contains(&at);
                if paused {
                    continue;
                }
                let held = match worker {
                    0 if (6_040 * MS..8_900 * MS).contains(&at) => Some(("w0-c0-9f31", 33)),
                    1 if (8_110 * MS..8_660 * MS).contains(&at) => Some(("w1-c12-07ab", 34)),
                    _ => None,
                };
                let lock = self.lock.clone();
                let grants: Vec<Value> = held
                    .iter()
                    .map(|(owner, fence)| json!({"key": lock, "owner": owner, "fence": fence}))
                    .collect();
                self.named(
                    at,
                    &format!("w{worker}"),
                    "claims",
                    None,
                    json!({"grants": grants}),
                );
            }
        }
    }

    /// Lock cycles on three other locks, and on the story's lock until the story begins.
    fn load(&mut self) {
        let mut fence = 100;
        for n in 0..250_i64 {
            let at = 420 * MS + n * 45 * MS + self.random(20 * MS);
            if at > 11_800 * MS {
                break;
            }
            fence += 1;
            let client = 1 + (n as u64 % 11);
            let key = format!("L{}", 1 + n % 3);
            self.cycle(at, client, client / 4, &key, fence);
        }
        for n in 0..8 {
            let lock = self.lock.clone();
            self.cycle(
                (5_000 + n * 120) * MS,
                20 + n as u64,
                n as u64 % 3,
                &lock,
                25 + n as u64,
            );
        }
    }

    fn cycle(&mut self, at: i64, client: u64, worker: u64, key: &str, fence: u64) {
        let owner = format!("w{worker}-c{client}-{fence:04x}");
        let slow = if (6_260 * MS..8_760 * MS).contains(&at) {
            3
        } else {
            1
        };
        let mut took = || {
            let rare = if self.random(40) == 0 { 9 * MS } else { 0 };
            400_000 + self.random(900_000) * slow + rare
        };
        let (a, r, w, l) = (took(), took(), took(), took());
        let grant = json!({"worker": worker, "owner": owner, "fence": fence});
        let value = format!("{key}-{fence}");
        let mut write = grant.clone();
        write["value"] = json!(value);
        write["prev"] = Value::Null;
        let ask = json!({"worker": worker, "ttl_ms": 2000, "wait_ms": 500});
        let (t1, t2, t3) = (at + a + MS, at + a + r + 20 * MS, at + a + r + w + 22 * MS);
        let granted = json!({"owner": owner, "fence": fence, "ttl_ms": 2000});
        self.op((at, at + a), client, ("acquire", key), ask, Ok(granted));
        self.op(
            (t1, t1 + r),
            client,
            ("read", key),
            grant.clone(),
            Ok(json!({"value": null})),
        );
        self.op((t2, t2 + w), client, ("write", key), write, Ok(Value::Null));
        self.op(
            (t3, t3 + l),
            client,
            ("release", key),
            grant,
            Ok(json!({"held": true})),
        );
        self.accept(t2 + w / 2, ("write", key), (&owner, fence), &value, fence);
    }

    fn story(&mut self) {
        let lock = self.lock.clone();
        let key = lock.as_str();
        let (a, b) = (("w0-c0-9f31", 33), ("w1-c12-07ab", 34));
        let ms = |from: i64, to: i64| (from * MS, to * MS);
        let ask = |worker: u64| json!({"worker": worker, "mode": "exclusive", "ttl_ms": 2000, "wait_ms": 500});
        let hold = |worker: u64, grant: (&str, u64)| json!({"worker": worker, "owner": grant.0, "fence": grant.1});
        let granted =
            |grant: (&str, u64)| Ok(json!({"owner": grant.0, "fence": grant.1, "ttl_ms": 2000}));
        let write = |worker: u64, grant: (&str, u64), value: &str| {
            let mut write = hold(worker, grant);
            write["value"] = json!(value);
            write["prev"] = json!("v-32");
            write
        };
        let old = || Ok(json!({"value": "v-32"}));
        self.op(ms(6_030, 6_032), 0, ("acquire", key), ask(0), granted(a));
        self.op(ms(6_040, 6_042), 0, ("read", key), hold(0, a), old());
        self.accept(6_041 * MS, ("read", key), a, "v-32", 33);
        self.op(
            ms(6_240, 8_763),
            0,
            ("write", key),
            write(0, a, "v-33"),
            Ok(Value::Null),
        );
        let point =
            |state: &str| json!({"name": "before-store-write", "process": 0, "state": state});
        self.named(6_241 * MS, "w0", "point", None, point("reached"));
        self.pause("install", "started", 6_250, json!({}));
        let frozen = json!({"pid": 4711, "state": "T (stopped)", "took_ms": 3});
        self.pause("install", "installed", 6_255, frozen);
        self.named(6_256 * MS, "w0", "point", None, point("go"));
        for at in [6_500, 7_300] {
            self.op(ms(at, at + 500), 12, ("acquire", key), ask(1), Err("busy"));
        }
        self.op(ms(8_050, 8_100), 12, ("acquire", key), ask(1), granted(b));
        self.op(ms(8_110, 8_112), 12, ("read", key), hold(1, b), old());
        self.accept(8_111 * MS, ("read", key), b, "v-32", 34);
        self.op(
            ms(8_400, 8_403),
            12,
            ("write", key),
            write(1, b, "v-34"),
            Ok(Value::Null),
        );
        self.accept(8_401 * MS, ("write", key), b, "v-34", 34);
        self.op(
            ms(8_650, 8_652),
            12,
            ("release", key),
            hold(1, b),
            Ok(json!({"held": true})),
        );
        self.pause("heal", "started", 8_740, json!({}));
        let thawed = json!({"pid": 4711, "state": "S (sleeping)", "paused_ms": 2500});
        self.pause("heal", "healed", 8_760, thawed);
        self.accept(8_762 * MS, ("write", key), a, "v-33", 34);
        let after = json!({"index": 0, "time": 8_890 * MS});
        let lost = json!({"owner": a.0, "fence": 33, "reason": "deadline", "after": after});
        self.named(8_900 * MS, "w0", "lost", Some(key), lost);
        self.op(
            ms(8_905, 8_907),
            0,
            ("release", key),
            hold(0, a),
            Ok(json!({"held": false})),
        );
    }

    fn pause(&mut self, action: &str, status: &str, at: i64, receipt: Value) {
        let fault = json!({"id": "f1", "fault": "pause", "kind": "pause", "action": action,
            "targets": ["holder"], "affects": ["worker:0"], "status": status, "receipt": receipt});
        self.named(at * MS, "nemesis", "fault", None, fault);
    }

    pub fn history(&self) -> String {
        let lines = self
            .events
            .iter()
            .enumerate()
            .map(|(index, (time, event))| {
                let mut event = event.clone();
                event["index"] = json!(index);
                event["time"] = json!(time);
                format!("{event}\n")
            });
        lines.collect()
    }

    pub fn store_log(&self) -> String {
        let lines = self.store.iter().enumerate().map(|(n, (time, entry))| {
            let mut entry = entry.clone();
            entry["seq"] = json!(n + 1);
            entry["time"] = json!(time + 77_000 * MS);
            format!("{entry}\n")
        });
        lines.collect()
    }

    /// Writes the whole folder.
    pub fn write(&self, folder: &Path) {
        std::fs::create_dir_all(folder).unwrap();
        let put = |name: &str, text: String| std::fs::write(folder.join(name), text).unwrap();
        put("run.json", self.meta().to_string());
        put("verdict.json", self.verdict().to_string());
        put("history.jsonl", self.history());
        put("store.jsonl", self.store_log());
    }
}
