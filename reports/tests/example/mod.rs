//! A run folder made by hand: the Kleppmann pause on an unfenced store, with a
//! background load. Small, deterministic, and true to docs/history-format.md.

#![allow(dead_code, clippy::unwrap_used)]

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

    /// An operation that takes `took` and is answered with `kind` (`ok`, `fail`, `info`).
    pub fn op(
        &mut self,
        at: i64,
        took: i64,
        process: u64,
        f: &str,
        key: &str,
        ask: Value,
        kind: &str,
        answer: Value,
    ) {
        let ask = json!({"process": process, "type": "invoke", "f": f, "key": key, "value": ask});
        self.events.push((at, ask));
        let mut done = json!({"process": process, "type": kind, "f": f, "key": key});
        let member = if kind == "ok" { "value" } else { "error" };
        done[member] = answer;
        self.events.push((at + took, done));
    }

    fn accept(
        &mut self,
        at: i64,
        op: &str,
        key: &str,
        fence: u64,
        owner: &str,
        value: &str,
        prev: Value,
        highest: u64,
    ) {
        let entry = json!({"op": op, "key": key, "fence": fence, "owner": owner, "value": value,
            "prev": prev, "accepted": true, "highest": highest});
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
                1 + n as u64,
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
            400_000 + self.random(900_000) * slow + if self.random(40) == 0 { 9 * MS } else { 0 }
        };
        let (a, r, w, l) = (took(), took(), took(), took());
        let grant = json!({"worker": worker, "owner": owner, "fence": fence});
        let with = |more: Value| {
            let mut all = grant.clone();
            all.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            all
        };
        let ask = json!({"worker": worker, "ttl_ms": 2000, "wait_ms": 500});
        let (t1, t2, t3) = (at + a + MS, at + a + r + 20 * MS, at + a + r + w + 22 * MS);
        self.op(
            at,
            a,
            client,
            "acquire",
            key,
            ask,
            "ok",
            json!({"owner": owner, "fence": fence, "ttl_ms": 2000}),
        );
        self.op(
            t1,
            r,
            client,
            "read",
            key,
            grant.clone(),
            "ok",
            json!({"value": null}),
        );
        let value = format!("{key}-{fence}");
        self.op(
            t2,
            w,
            client,
            "write",
            key,
            with(json!({"value": value, "prev": null})),
            "ok",
            Value::Null,
        );
        self.op(
            t3,
            l,
            client,
            "release",
            key,
            grant.clone(),
            "ok",
            json!({"held": true}),
        );
        self.accept(
            t2 + w / 2,
            "write",
            key,
            fence,
            &owner,
            &value,
            Value::Null,
            fence,
        );
    }

    fn story(&mut self) {
        let lock = self.lock.clone();
        let key = lock.as_str();
        let (a, b) = ("w0-c0-9f31", "w1-c12-07ab");
        let ask = |worker: u64| json!({"worker": worker, "mode": "exclusive", "ttl_ms": 2000, "wait_ms": 500});
        let hold = |worker: u64, owner: &str, fence: u64| json!({"worker": worker, "owner": owner, "fence": fence});
        let write = |worker: u64, owner: &str, fence: u64, value: &str| json!({"worker": worker, "owner": owner, "fence": fence, "value": value, "prev": "v-32"});
        self.op(
            6_030 * MS,
            2 * MS,
            0,
            "acquire",
            key,
            ask(0),
            "ok",
            json!({"owner": a, "fence": 33, "ttl_ms": 2000}),
        );
        self.op(
            6_040 * MS,
            2 * MS,
            0,
            "read",
            key,
            hold(0, a, 33),
            "ok",
            json!({"value": "v-32"}),
        );
        self.accept(6_041 * MS, "read", key, 33, a, "v-32", Value::Null, 33);
        self.op(
            6_240 * MS,
            2_523 * MS,
            0,
            "write",
            key,
            write(0, a, 33, "v-33"),
            "ok",
            Value::Null,
        );
        let point =
            |state: &str| json!({"name": "before-store-write", "process": 0, "state": state});
        self.named(6_241 * MS, "w0", "point", None, point("reached"));
        let fault = |action: &str, status: &str, receipt: Value| {
            json!({"id": "f1", "fault": "pause", "kind": "pause", "action": action, "targets": ["holder"],
                "affects": ["worker:0"], "status": status, "receipt": receipt})
        };
        self.named(
            6_250 * MS,
            "nemesis",
            "fault",
            None,
            fault("install", "started", json!({})),
        );
        let frozen = json!({"pid": 4711, "state": "T (stopped)", "took_ms": 3});
        self.named(
            6_255 * MS,
            "nemesis",
            "fault",
            None,
            fault("install", "installed", frozen),
        );
        self.named(6_256 * MS, "w0", "point", None, point("go"));
        for at in [6_500, 7_300] {
            self.op(
                at * MS,
                500 * MS,
                12,
                "acquire",
                key,
                ask(1),
                "fail",
                json!("busy"),
            );
        }
        let granted = json!({"owner": b, "fence": 34, "ttl_ms": 2000});
        self.op(
            8_050 * MS,
            50 * MS,
            12,
            "acquire",
            key,
            ask(1),
            "ok",
            granted,
        );
        self.op(
            8_110 * MS,
            2 * MS,
            12,
            "read",
            key,
            hold(1, b, 34),
            "ok",
            json!({"value": "v-32"}),
        );
        self.accept(8_111 * MS, "read", key, 34, b, "v-32", Value::Null, 34);
        self.op(
            8_400 * MS,
            3 * MS,
            12,
            "write",
            key,
            write(1, b, 34, "v-34"),
            "ok",
            Value::Null,
        );
        self.accept(8_401 * MS, "write", key, 34, b, "v-34", json!("v-32"), 34);
        self.op(
            8_650 * MS,
            2 * MS,
            12,
            "release",
            key,
            hold(1, b, 34),
            "ok",
            json!({"held": true}),
        );
        self.named(
            8_740 * MS,
            "nemesis",
            "fault",
            None,
            fault("heal", "started", json!({})),
        );
        let thawed = json!({"pid": 4711, "state": "S (sleeping)", "paused_ms": 2500});
        self.named(
            8_760 * MS,
            "nemesis",
            "fault",
            None,
            fault("heal", "healed", thawed),
        );
        self.accept(8_762 * MS, "write", key, 33, a, "v-33", json!("v-32"), 34);
        let lost = json!({"owner": a, "fence": 33, "reason": "deadline", "after": {"index": 0, "time": 8_890 * MS}});
        self.named(8_900 * MS, "w0", "lost", Some(key), lost);
        self.op(
            8_905 * MS,
            2 * MS,
            0,
            "release",
            key,
            hold(0, a, 33),
            "ok",
            json!({"held": false}),
        );
    }

    /// Index of the event of `process` that is `f` and `kind` at `at` ms.
    pub fn index(&self, at: i64, f: &str, kind: &str) -> u64 {
        let found = self
            .events
            .iter()
            .position(|(t, e)| *t == at * MS && e["f"] == f && e["type"] == kind);
        found.unwrap() as u64
    }

    /// `run.json` as the controller would write it.
    pub fn meta(&self) -> Value {
        json!({"format": 1, "run_id": "example", "name": "kleppmann-pause", "seed": 7, "host": "local",
            "system": {"name": "redis", "version": "8.0.2", "lease": true, "fence": true, "granularity_ms": 1},
            "store": {"kind": "witness", "fenced": false, "raise_on_read": false, "faulted": false},
            "lease": {"ttl_ms": 2000}, "workers": 3, "clients": 4, "mode": "exclusive", "workload": "register",
            "expect": {"stale-fence-accepted": "violated", "lost-update": "violated",
                "double-holder.service": "holds", "double-holder.limit": "violated", "lease-overrun": "violated"},
            "scenario": {"name": "kleppmann-pause",
                "about": "A holder is paused past its lease and writes with its old fence.",
                "lease": {"ttl_ms": 2000}, "load": {"rate": 22.0, "workers": 3, "clients": 4},
                "faults": [{"fault": "pause", "target": "holder", "on": "point before-store-write", "until": "write by another"}]},
            "target_rate": 22.0, "faults_planned": 1, "fencepost": "0.1.0",
            "command": ["fencepost", "run", "kleppmann-pause", "--system", "redis", "--seed", "7"],
            "started": "2026-01-15T10:20:30Z", "status": "complete", "failure": null})
    }

    /// `verdict.json` as the checks would write it.
    pub fn verdict(&self) -> Value {
        let step = |at: i64, f: &str, kind: &str, text: &str| json!({"index": self.index(at, f, kind), "time": at * MS, "text": text});
        let story = vec![
            step(
                6_032,
                "acquire",
                "ok",
                "worker 0 is granted the lock with fence 33 for 2,000 ms",
            ),
            step(
                6_255,
                "fault",
                "info",
                "worker 0 is paused just before its write",
            ),
            step(
                8_100,
                "acquire",
                "ok",
                "the lease has ended; worker 1 is granted the lock with fence 34",
            ),
            step(
                8_403,
                "write",
                "ok",
                "worker 1 writes with fence 34, and the store accepts it",
            ),
            step(
                8_760,
                "fault",
                "info",
                "worker 0 runs again and still believes that it holds the lock",
            ),
            step(
                8_763,
                "write",
                "ok",
                "worker 0's write with fence 33 is accepted after fence 34",
            ),
        ];
        let evidence = [
            self.index(8_403, "write", "ok"),
            self.index(8_763, "write", "ok"),
        ];
        let check = |verdict: &str,
                     expected: &str,
                     reason: &str,
                     told: bool,
                     count: u64,
                     exercised: u64| {
            let (evidence, story) = if told {
                (json!(evidence), json!(story))
            } else {
                (json!([]), json!([]))
            };
            json!({"verdict": verdict, "expected": expected, "reason": reason, "evidence": evidence,
                "story": story, "count": count, "exercised": exercised})
        };
        json!({"format": 1, "outcome": "as-expected", "exit_code": 0, "checks": {
            "stale-fence-accepted": check("violated", "violated", "fence 33 was accepted after fence 34", true, 1, 1),
            "lost-update": check("violated", "violated", "updates v-34 and v-33 both replace v-32", true, 1, 259),
            "lease-overrun": check("violated", "violated", "worker 0 wrote 743 ms after its promised end", true, 1, 1),
            "double-holder.limit": check("violated", "violated", "worker 0 claims fence 33 while worker 1 holds fence 34", true, 1, 2),
            "double-holder.service": check("holds", "holds", "no two grants overlap within their promised ends", false, 0, 259),
            "fence-monotonic": check("holds", "not-violated", "every grant has a higher fence than the one before", false, 0, 259),
            "unheld-write": check("holds", "not-violated", "every write was made under a grant", false, 0, 260),
            "owner-only": check("holds", "not-violated", "nobody freed another's lock", false, 0, 260),
            "fair": check("unknown", "any", "the service promises no order", false, 0, 0),
        }})
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
