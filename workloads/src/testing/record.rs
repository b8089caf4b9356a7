//! Calls of clients, recorded as a controller records them, and what the checks say of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use fencepost_checker::checks::{Lineup, Results};
use fencepost_checker::judge::facts::Facts;
use fencepost_checker::verdict::Verdict;
use fencepost_history::json::parse_value;
use fencepost_history::{Event, EventType, Process};
use serde_json::{Value as Json, json};

use crate::locks::{CallError, Grant, LockClient, Signal, Signals, Want};
use crate::protocol::Mode;

pub struct Record {
    lineup: Mutex<Lineup>,
    next: Mutex<u64>,
    began: Instant,
    /// The last acquire of each worker.
    asked: Mutex<HashMap<u32, u64>>,
}

impl Record {
    /// A history under the facts of a `run.json`.
    pub fn new(facts: &Json) -> Self {
        let facts = Facts::parse(&facts.to_string()).unwrap();
        Record {
            lineup: Mutex::new(Lineup::new(&facts)),
            next: Mutex::new(0),
            asked: Mutex::default(),
            began: Instant::now(),
        }
    }

    /// One service with leases of `ttl` milliseconds and fences.
    pub fn leased(ttl: u64) -> Self {
        let system = json!({"lease": true, "fence": true, "granularity_ms": 1});
        Self::new(&json!({"system": system, "lease": {"ttl_ms": ttl}}))
    }

    /// Index and stamp together.
    fn push(
        &self,
        mut next: MutexGuard<'_, u64>,
        process: Process,
        kind: EventType,
        f: &str,
        key: Option<&str>,
        (value, error): (Json, Option<String>),
    ) {
        let event = Event {
            index: *next,
            time: self.began.elapsed().as_nanos() as i64,
            process,
            kind,
            f: f.into(),
            key: key.map(Into::into),
            value: parse_value(&value.to_string()).unwrap(),
            error: error.map(Into::into),
        };
        *next += 1;
        self.lineup.lock().unwrap().event(&event);
    }

    /// A new process for each operation: none has to wait for another.
    fn invoke(&self, f: &str, key: &str, value: Json) -> u64 {
        let next = self.next.lock().unwrap();
        let process = *next;
        let who = Process::Client(process);
        self.push(next, who, EventType::Invoke, f, Some(key), (value, None));
        process
    }

    fn complete<T>(
        &self,
        (process, f, key): (u64, &str, &str),
        answer: &Result<T, CallError>,
        ok: impl FnOnce(&T) -> Json,
    ) {
        let (kind, value, error) = match answer {
            Ok(x) => (EventType::Ok, ok(x), None),
            Err(CallError::Definite(e)) => (EventType::Fail, Json::Null, Some(e.to_string())),
            Err(CallError::Unknown(e)) => (EventType::Info, Json::Null, Some(e.to_string())),
        };
        let next = self.next.lock().unwrap();
        let who = Process::Client(process);
        self.push(next, who, kind, f, Some(key), (value, error));
    }

    pub async fn acquire(
        &self,
        worker: u32,
        lock: &dyn LockClient,
        want: &Want,
    ) -> Result<Grant, CallError> {
        let mode = match want.mode {
            Mode::Exclusive => "exclusive",
            Mode::Shared => "shared",
            Mode::Semaphore => "semaphore",
        };
        let asked = want.ttl.map(|t| t.as_millis() as u64);
        let value = json!({"worker": worker, "mode": mode, "ttl_ms": asked});
        let process = self.invoke("acquire", &want.key, value);
        self.asked.lock().unwrap().insert(worker, process);
        let answer = lock.acquire(want).await;
        self.complete((process, "acquire", &want.key), &answer, |g| {
            let ttl = g.ttl.map(|t| t.as_millis() as u64);
            json!({"owner": *g.owner, "fence": g.fence.map(|f| f.0), "ttl_ms": ttl})
        });
        answer
    }

    pub async fn renew(
        &self,
        worker: u32,
        lock: &dyn LockClient,
        grant: &Grant,
        ttl: Duration,
    ) -> Result<Duration, CallError> {
        let process = self.invoke("renew", &grant.key, held(worker, grant));
        let answer = lock.renew(grant, ttl).await;
        self.complete(
            (process, "renew", &grant.key),
            &answer,
            |t| json!({"ttl_ms": t.as_millis() as u64}),
        );
        answer
    }

    pub async fn release(
        &self,
        worker: u32,
        lock: &dyn LockClient,
        grant: &Grant,
    ) -> Result<bool, CallError> {
        let process = self.invoke("release", &grant.key, held(worker, grant));
        let answer = lock.release(grant).await;
        self.complete(
            (process, "release", &grant.key),
            &answer,
            |was| json!({"held": was}),
        );
        answer
    }

    /// What a worker's client says of its place in the queue, as the worker passes it on.
    pub fn signals(self: &Arc<Self>, worker: u32) -> Signals {
        let record = Arc::downgrade(self);
        Signals::new(move |signal| {
            let f = match signal {
                Signal::Queued(_) => "queued",
                Signal::Woken(_) => "woken",
                Signal::Lost { .. } => return,
            };
            let Some(record) = record.upgrade() else {
                return;
            };
            let Some(process) = record.asked.lock().unwrap().get(&worker).copied() else {
                return;
            };
            let who = Process::Named(format!("w{worker}").into());
            let next = record.next.lock().unwrap();
            let value = (json!({ "process": process }), None);
            record.push(next, who, EventType::Info, f, None, value);
        })
    }

    /// A worker died.
    pub fn exit(&self, worker: u32) {
        let next = self.next.lock().unwrap();
        let who = Process::Named(format!("w{worker}").into());
        let value = json!({"reason": "killed", "expected": true});
        self.push(next, who, EventType::Info, "exit", None, (value, None));
    }

    /// What every check answers.
    pub fn results(self) -> Results {
        self.lineup.into_inner().unwrap().finish()
    }

    /// Every entry that is violated.
    pub fn violated(self) -> Vec<String> {
        let violated = self
            .results()
            .into_iter()
            .filter(|(_, r)| r.verdict == Verdict::Violated);
        violated.map(|(name, _)| name).collect()
    }
}

fn held(worker: u32, grant: &Grant) -> Json {
    json!({"worker": worker, "owner": *grant.owner, "fence": grant.fence.map(|f| f.0)})
}
