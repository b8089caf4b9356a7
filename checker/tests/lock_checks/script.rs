//! A history written step by step, for tests.

use std::sync::Arc;

use fencepost_checker::checks::{Lineup, Results, StoreOp};
use fencepost_checker::judge::facts::Facts;
use fencepost_checker::verdict::Verdict;
use fencepost_history::json::parse_value;
use fencepost_history::{Event, EventType, Process, Value};

pub struct Script {
    pub facts: Facts,
    pub events: Vec<Event>,
    pub store: Vec<StoreOp>,
    now: i64,
    open: std::collections::HashMap<u64, Arc<str>>,
    fault: u32,
}

/// Leases of 1 s with fences, exclusive.
pub fn script() -> Script {
    with(
        r#"{"system":{"name":"test","lease":true,"fence":true,"granularity_ms":1},"lease":{"ttl_ms":1000}}"#,
    )
}

pub fn with(run: &str) -> Script {
    Script {
        facts: Facts::parse(run).expect("facts"),
        events: Vec::new(),
        store: Vec::new(),
        now: 0,
        open: Default::default(),
        fault: 0,
    }
}

fn value(text: &str) -> Value {
    parse_value(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn quoted(v: &str) -> String {
    if v == "null" {
        v.into()
    } else {
        format!("\"{v}\"")
    }
}

impl Script {
    /// Moves to this time, in milliseconds.
    pub fn t(mut self, ms: i64) -> Self {
        assert!(ms * 1_000_000 >= self.now, "time goes on");
        self.now = ms * 1_000_000;
        self
    }

    pub fn push(
        mut self,
        process: Process,
        kind: EventType,
        f: &str,
        v: &str,
        error: Option<&str>,
    ) -> Self {
        self.events.push(Event {
            index: self.events.len() as u64,
            time: self.now,
            process,
            kind,
            f: f.into(),
            key: Some("L0".into()),
            value: value(v),
            error: error.map(Arc::from),
        });
        self.now += 1;
        self
    }

    pub fn invoke(mut self, p: u64, f: &str, v: &str) -> Self {
        self.open.insert(p, f.into());
        self.push(Process::Client(p), EventType::Invoke, f, v, None)
    }

    pub fn done(mut self, p: u64, kind: EventType, v: &str, error: Option<&str>) -> Self {
        let f = self.open.remove(&p).expect("an open operation");
        self.push(Process::Client(p), kind, &f, v, error)
    }

    pub fn ok(self, p: u64) -> Self {
        self.done(p, EventType::Ok, "null", None)
    }

    pub fn fail(self, p: u64, error: &str) -> Self {
        self.done(p, EventType::Fail, "null", Some(error))
    }

    pub fn info(self, p: u64) -> Self {
        self.done(p, EventType::Info, "null", Some("timeout"))
    }

    /// Process `p` is carried by worker `p`, here and below.
    pub fn acq(self, p: u64) -> Self {
        let v = format!(r#"{{"worker":{p},"mode":"exclusive","ttl_ms":1000}}"#);
        self.invoke(p, "acquire", &v)
    }

    pub fn acq_mode(self, p: u64, mode: &str) -> Self {
        let v = format!(r#"{{"worker":{p},"mode":"{mode}","ttl_ms":1000}}"#);
        self.invoke(p, "acquire", &v)
    }

    pub fn got(self, p: u64, owner: &str, fence: u64) -> Self {
        let v = format!(r#"{{"owner":"{owner}","fence":{fence},"ttl_ms":1000}}"#);
        self.done(p, EventType::Ok, &v, None)
    }

    /// Acquire and ok, 2 ms apart.
    pub fn grant(self, p: u64, owner: &str, fence: u64) -> Self {
        let ms = self.now / 1_000_000;
        self.acq(p).t(ms + 2).got(p, owner, fence)
    }

    pub fn rel(self, p: u64, owner: &str, fence: u64) -> Self {
        let v = format!(r#"{{"worker":{p},"owner":"{owner}","fence":{fence}}}"#);
        self.invoke(p, "release", &v)
    }

    pub fn held(self, p: u64, held: bool) -> Self {
        self.done(p, EventType::Ok, &format!(r#"{{"held":{held}}}"#), None)
    }

    pub fn wr(self, p: u64, owner: &str, fence: u64, v: &str, prev: &str) -> Self {
        let prev = quoted(prev);
        let v = format!(
            r#"{{"worker":{p},"owner":"{owner}","fence":{fence},"value":"{v}","prev":{prev}}}"#
        );
        self.invoke(p, "write", &v)
    }

    pub fn add(self, p: u64, owner: &str, fence: u64, e: u64) -> Self {
        let v = format!(r#"{{"worker":{p},"owner":"{owner}","fence":{fence},"element":{e}}}"#);
        self.invoke(p, "add", &v)
    }

    pub fn last(self, v: &str) -> Self {
        self.invoke(999, "read", r#"{"final":true}"#)
            .done(999, EventType::Ok, v, None)
    }

    pub fn named(self, name: &str, f: &str, v: &str) -> Self {
        self.push(Process::Named(name.into()), EventType::Info, f, v, None)
    }

    fn after(&self, ms: i64) -> String {
        let time = ms * 1_000_000;
        let index = self
            .events
            .iter()
            .rfind(|e| e.time <= time)
            .map_or(0, |e| e.index);
        format!(r#"{{"index":{index},"time":{time}}}"#)
    }

    pub fn claims(self, w: u64, owner: &str, fence: u64, after: i64) -> Self {
        let after = self.after(after);
        let v = format!(
            r#"{{"grants":[{{"key":"L0","owner":"{owner}","fence":{fence}}}],"after":{after}}}"#
        );
        self.named(&format!("w{w}"), "claims", &v)
    }

    pub fn renewed(self, w: u64, owner: &str, fence: u64, ok: &str, after: i64) -> Self {
        let after = self.after(after);
        let v = format!(
            r#"{{"owner":"{owner}","fence":{fence},"ok":{ok},"ttl_ms":1000,"after":{after}}}"#
        );
        self.named(&format!("w{w}"), "renew", &v)
    }

    pub fn lost(self, w: u64, owner: &str, fence: u64, after: i64) -> Self {
        let after = self.after(after);
        let v =
            format!(r#"{{"owner":"{owner}","fence":{fence},"reason":"deadline","after":{after}}}"#);
        self.named(&format!("w{w}"), "lost", &v)
    }

    pub fn point(self, p: u64, state: &str) -> Self {
        let v = format!(r#"{{"name":"before-store-write","process":{p},"state":"{state}"}}"#);
        self.named(&format!("w{p}"), "point", &v)
    }

    pub fn fault_event(
        self,
        id: &str,
        kind: &str,
        action: &str,
        status: &str,
        target: &str,
    ) -> Self {
        let v = format!(
            r#"{{"id":"{id}","fault":"{kind}","kind":"{kind}","action":"{action}","targets":["{target}"],"affects":["{target}"],"status":"{status}","receipt":{{}}}}"#
        );
        self.named("nemesis", "fault", &v)
    }

    pub fn fault_on(mut self, kind: &str, target: &str) -> Self {
        self.fault += 1;
        let id = format!("f{}", self.fault);
        self.fault_event(&id, kind, "install", "started", target)
            .fault_event(&id, kind, "install", "installed", target)
    }

    pub fn fault_off(self, kind: &str, target: &str) -> Self {
        let id = format!("f{}", self.fault);
        self.fault_event(&id, kind, "heal", "started", target)
            .fault_event(&id, kind, "heal", "healed", target)
    }

    /// The store's next log line; of a write, `"v"`; of an add, a number; of a read, `""`.
    pub fn log(mut self, op: &str, owner: &str, fence: u64, v: &str, accepted: bool) -> Self {
        let seq = self.store.len() + 1;
        let member = match op {
            "add" => format!(r#""element":{v},"#),
            "write" => format!(r#""value":"{v}","#),
            _ => String::new(),
        };
        let line = format!(
            r#"{{"seq":{seq},"op":"{op}","key":"L0","fence":{fence},"owner":"{owner}",{member}"accepted":{accepted}}}"#
        );
        self.store
            .push(StoreOp::from_value(&value(&line)).expect("a log line"));
        self
    }

    pub fn lineup(&self) -> Lineup {
        let mut lineup = Lineup::new(&self.facts);
        for op in &self.store {
            lineup.store(op);
        }
        for e in &self.events {
            lineup.event(e);
        }
        for op in &self.store {
            lineup.store_again(op);
        }
        lineup
    }

    pub fn judge(&self) -> Results {
        self.lineup().finish()
    }

    /// Asserts what one check answers; returns its evidence.
    #[track_caller]
    pub fn says(&self, check: &str, verdict: Verdict) -> Vec<u64> {
        let results = self.judge();
        let r = results
            .get(check)
            .unwrap_or_else(|| panic!("no check {check}"));
        assert_eq!(r.verdict, verdict, "{check}: {} {:?}", r.reason, r.evidence);
        assert!(r.evidence.is_sorted());
        if verdict == Verdict::Violated {
            assert!(!r.story.is_empty(), "{check} tells no story");
        }
        r.evidence.clone()
    }

    #[track_caller]
    pub fn holds(self, check: &str) -> Self {
        self.says(check, Verdict::Holds);
        self
    }

    #[track_caller]
    pub fn violates(self, check: &str) -> Self {
        self.says(check, Verdict::Violated);
        self
    }

    #[track_caller]
    pub fn unknown(self, check: &str) -> Self {
        self.says(check, Verdict::Unknown);
        self
    }

    /// No check at all is violated.
    #[track_caller]
    pub fn clean(self) -> Self {
        for (name, r) in self.judge() {
            assert_ne!(
                r.verdict,
                Verdict::Violated,
                "{name}: {} {:?}",
                r.reason,
                r.evidence
            );
        }
        self
    }
}
