//! From requests and answers of the worker protocol to events of the history
//! (docs/history-format.md says what each carries).

use std::sync::{Arc, LazyLock};

use fencepost_history::{EventType, Process, Value, names};
use fencepost_workloads::protocol::{
    Answer, Claim, Fence, Hold, Item, Mode, Op, OpName, WorkerEvent,
};

use super::watch::Ended;
use crate::record::{Draft, Stamp};

macro_rules! words {
    ($($name:ident),* $(,)?) => {
        /// Shared strings, so that recording an event copies no names.
        pub struct Words { $(pub $name: Arc<str>),* }
        pub static WORDS: LazyLock<Words> = LazyLock::new(|| Words { $($name: stringify!($name).into()),* });
    };
}

words!(
    worker, owner, fence, mode, ttl_ms, wait_ms, permits, value, prev, element, held, grants, key,
    reason, after, index, time, ok, process, name, state, exclusive, shared, semaphore, reached,
    go, acquire, renew, release, read, write, add, claims, lost, queued, woken, point, close,
);

type Members = Vec<(Arc<str>, Value)>;

fn int(n: impl Into<i128>) -> Value {
    Value::Int(n.into())
}

fn fence(f: Option<Fence>) -> Value {
    f.map_or(Value::Null, |f| int(f.0))
}

fn millis(ms: Option<u64>) -> Value {
    ms.map_or(Value::Null, int)
}

fn hold(worker: usize, h: &Hold) -> Members {
    let mut members = Vec::with_capacity(5);
    members.push((WORDS.worker.clone(), int(worker as u64)));
    members.push((WORDS.owner.clone(), Value::Str(h.owner.clone())));
    members.push((WORDS.fence.clone(), fence(h.fence)));
    members
}

/// Name of an operation in the history; none for requests that are not operations.
pub fn name(op: OpName) -> Option<Arc<str>> {
    let w = &*WORDS;
    Some(match op {
        OpName::Acquire => w.acquire.clone(),
        OpName::Renew => w.renew.clone(),
        OpName::Release => w.release.clone(),
        OpName::Read => w.read.clone(),
        OpName::Write => w.write.clone(),
        OpName::Add => w.add.clone(),
        OpName::Init | OpName::Ping | OpName::Close => return None,
    })
}

/// Name of any request.
pub fn word(op: OpName) -> &'static str {
    match op {
        OpName::Init => "init",
        OpName::Acquire => "acquire",
        OpName::Renew => "renew",
        OpName::Release => "release",
        OpName::Read => "read",
        OpName::Write => "write",
        OpName::Add => "add",
        OpName::Ping => "ping",
        OpName::Close => "close",
    }
}

/// The invocation of an operation by a client of `worker`; none for requests that are not operations.
pub fn invocation(worker: usize, process: u64, op: &Op) -> Option<Draft> {
    let w = &*WORDS;
    let (key, members) = match op {
        Op::Acquire(a) => {
            let mode = match a.mode {
                Mode::Exclusive => &w.exclusive,
                Mode::Shared => &w.shared,
                Mode::Semaphore => &w.semaphore,
            };
            let mut m = vec![
                (w.worker.clone(), int(worker as u64)),
                (w.mode.clone(), Value::Str(mode.clone())),
                (w.ttl_ms.clone(), millis(a.ttl_ms)),
                (w.wait_ms.clone(), int(a.wait_ms)),
            ];
            if let Some(n) = a.permits {
                m.push((w.permits.clone(), int(n)));
            }
            (&a.key, m)
        }
        Op::Renew(r) => {
            let mut m = hold(worker, &r.hold);
            m.push((w.ttl_ms.clone(), millis(r.ttl_ms)));
            (&r.hold.key, m)
        }
        Op::Release(h) | Op::Read(h) => (&h.key, hold(worker, h)),
        Op::Write(x) => {
            let mut m = hold(worker, &x.hold);
            m.push((w.value.clone(), Item::to_history(Some(&x.value))));
            m.push((w.prev.clone(), Item::to_history(x.prev.as_ref())));
            (&x.hold.key, m)
        }
        Op::Add(x) => {
            let mut m = hold(worker, &x.hold);
            m.push((w.element.clone(), Item::to_history(Some(&x.element))));
            (&x.hold.key, m)
        }
        Op::Init(_) | Op::Ping | Op::Close => return None,
    };
    Some(Draft {
        process: Process::Client(process),
        kind: EventType::Invoke,
        f: name(op.name())?,
        key: Some(key.clone()),
        value: Value::Map(members),
        error: None,
    })
}

/// The completion of an operation.
pub fn completion(process: u64, f: &Arc<str>, key: &Arc<str>, answer: &Answer) -> Draft {
    let w = &*WORDS;
    let (kind, value, error) = match answer {
        Answer::Granted(g) => {
            let value = Value::Map(vec![
                (w.owner.clone(), Value::Str(g.owner.clone())),
                (w.fence.clone(), fence(g.fence)),
                (w.ttl_ms.clone(), millis(g.ttl_ms)),
            ]);
            (EventType::Ok, value, None)
        }
        Answer::Renewed { ttl_ms } => (
            EventType::Ok,
            Value::Map(vec![(w.ttl_ms.clone(), millis(*ttl_ms))]),
            None,
        ),
        Answer::Released { held } => (
            EventType::Ok,
            Value::Map(vec![(w.held.clone(), Value::Bool(*held))]),
            None,
        ),
        Answer::Value(item) => (
            EventType::Ok,
            Value::Map(vec![(w.value.clone(), Item::to_history(item.as_ref()))]),
            None,
        ),
        Answer::Done | Answer::Hello(_) | Answer::Claims(_) => (EventType::Ok, Value::Null, None),
        Answer::Fail(e) => (EventType::Fail, Value::Null, Some(e.clone())),
        Answer::Info(e) => (EventType::Info, Value::Null, Some(e.clone())),
    };
    Draft {
        process: Process::Client(process),
        kind,
        f: f.clone(),
        key: Some(key.clone()),
        value,
        error,
    }
}

/// The completion of an operation whose answer never came.
pub fn unknown(process: u64, f: &Arc<str>, key: &Arc<str>, why: &str) -> Draft {
    completion(process, f, key, &Answer::Info(why.into()))
}

/// A worker's claims, made no earlier than `after`. The lock is inside each grant.
pub fn claims(worker: &Arc<str>, claims: &[Claim], after: Stamp) -> Draft {
    let w = &*WORDS;
    let grants = claims
        .iter()
        .map(|c| {
            Value::Map(vec![
                (w.key.clone(), Value::Str(c.key.clone())),
                (w.owner.clone(), Value::Str(c.owner.clone())),
                (w.fence.clone(), fence(c.fence)),
            ])
        })
        .collect();
    named(
        worker,
        &w.claims,
        None,
        vec![
            (w.grants.clone(), Value::List(grants)),
            (w.after.clone(), stamp(after)),
        ],
    )
}

/// What a worker said unasked about a grant of its own; `None` for points and queues.
pub fn grant_event(worker: &Arc<str>, event: &WorkerEvent, after: Stamp) -> Option<Draft> {
    let w = &*WORDS;
    let after = stamp(after);
    match event {
        WorkerEvent::Renew {
            key,
            owner,
            fence: n,
            ok,
            ttl_ms,
            ..
        } => {
            let members = vec![
                (w.owner.clone(), Value::Str(owner.clone())),
                (w.fence.clone(), fence(*n)),
                (w.ok.clone(), ok.map_or(Value::Null, Value::Bool)),
                (w.ttl_ms.clone(), millis(*ttl_ms)),
                (w.after.clone(), after),
            ];
            Some(named(worker, &w.renew, Some(key), members))
        }
        WorkerEvent::Lost {
            key,
            owner,
            fence: n,
            reason,
            ..
        } => {
            let members = vec![
                (w.owner.clone(), Value::Str(owner.clone())),
                (w.fence.clone(), fence(*n)),
                (w.reason.clone(), Value::Str(reason.clone())),
                (w.after.clone(), after),
            ];
            Some(named(worker, &w.lost, Some(key), members))
        }
        WorkerEvent::Queued { .. } | WorkerEvent::Woken { .. } | WorkerEvent::Point { .. } => None,
    }
}

fn stamp(at: Stamp) -> Value {
    let w = &*WORDS;
    Value::Map(vec![
        (w.index.clone(), int(at.index)),
        (w.time.clone(), int(at.time)),
    ])
}

/// A worker is about to be asked to free everything.
pub fn close(worker: &Arc<str>) -> Draft {
    named(worker, &WORDS.close, None, vec![])
}

pub fn queued(worker: &Arc<str>, key: &Arc<str>, process: u64) -> Draft {
    of_process(worker, &WORDS.queued, key, process)
}

pub fn woken(worker: &Arc<str>, key: &Arc<str>, process: u64) -> Draft {
    of_process(worker, &WORDS.woken, key, process)
}

fn of_process(worker: &Arc<str>, f: &Arc<str>, key: &Arc<str>, process: u64) -> Draft {
    let members = vec![(WORDS.process.clone(), int(process))];
    named(worker, f, Some(key), members)
}

/// A worker stands at a point, or goes on from it.
pub fn point(worker: &Arc<str>, key: &Arc<str>, name: &Arc<str>, process: u64, go: bool) -> Draft {
    let w = &*WORDS;
    let state = if go { &w.go } else { &w.reached };
    let members = vec![
        (w.name.clone(), Value::Str(name.clone())),
        (w.process.clone(), int(process)),
        (w.state.clone(), Value::Str(state.clone())),
    ];
    named(worker, &w.point, Some(key), members)
}

pub fn phase(name: &str) -> Draft {
    let value = Value::Map(vec![("phase".into(), Value::Str(name.into()))]);
    Draft::named(&names::CONTROLLER.into(), names::PHASE, value)
}

/// The run ends here, since this check is surely violated.
pub fn fail_fast(check: &str) -> Draft {
    let value = Value::Map(vec![
        ("phase".into(), Value::Str("fail-fast".into())),
        ("check".into(), Value::Str(check.into())),
    ]);
    Draft::named(&names::CONTROLLER.into(), names::PHASE, value)
}

pub fn exit(worker: &Arc<str>, reason: &str, expected: bool) -> Draft {
    let value = Value::Map(vec![
        ("reason".into(), Value::Str(reason.into())),
        ("expected".into(), Value::Bool(expected)),
    ]);
    Draft::named(worker, names::EXIT, value)
}

/// A server ended by itself: `node:1` is `n1` in the history, as worker 1 is `w1`.
pub fn node_exit(ended: &Ended) -> Draft {
    let text = |s: &str| Value::Str(s.into());
    let log = ended.log.iter().map(|l| text(l)).collect();
    let value = Value::Map(vec![
        ("node".into(), text(&ended.node)),
        (WORDS.name.clone(), text(&ended.name)),
        (WORDS.reason.clone(), text(&ended.how)),
        ("log".into(), Value::List(log)),
    ]);
    let process = ended.node.replace("node:", "n");
    Draft::named(&process.into(), names::EXIT, value)
}

fn named(process: &Arc<str>, f: &Arc<str>, key: Option<&Arc<str>>, members: Members) -> Draft {
    Draft {
        process: Process::Named(process.clone()),
        kind: EventType::Info,
        f: f.clone(),
        key: key.cloned(),
        value: Value::Map(members),
        error: None,
    }
}

/// A JSON value as a history value; numbers beyond 64 bits do not occur in it.
pub fn from_json(json: &serde_json::Value) -> Value {
    use serde_json::Value as J;
    match json {
        J::Null => Value::Null,
        J::Bool(b) => Value::Bool(*b),
        J::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(i), _) => int(i),
            (_, Some(u)) => int(u),
            _ => Value::Float(n.as_f64().unwrap_or_default()),
        },
        J::String(s) => Value::Str(s.as_str().into()),
        J::Array(items) => Value::List(items.iter().map(from_json).collect()),
        J::Object(members) => Value::Map(
            members
                .iter()
                .map(|(k, v)| (k.as_str().into(), from_json(v)))
                .collect(),
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use fencepost_workloads::protocol::{Acquire, Granted, Write};

    fn line(draft: Draft) -> String {
        let mut out = Vec::new();
        let event = fencepost_history::Event {
            index: 0,
            time: 0,
            process: draft.process,
            kind: draft.kind,
            f: draft.f,
            key: draft.key,
            value: draft.value,
            error: draft.error,
        };
        fencepost_history::json::write_event(&mut out, &event);
        String::from_utf8(out)
            .unwrap()
            .trim_end()
            .replace("{\"index\":0,\"time\":0,", "{")
    }

    #[test]
    fn operations_read_as_the_format_says() {
        let acquire = Op::Acquire(Acquire {
            client: 1,
            key: "L0".into(),
            mode: Mode::Exclusive,
            ttl_ms: Some(2000),
            wait_ms: 500,
            permits: None,
        });
        assert_eq!(
            line(invocation(2, 7, &acquire).unwrap()),
            r#"{"process":7,"type":"invoke","f":"acquire","key":"L0","value":{"worker":2,"mode":"exclusive","ttl_ms":2000,"wait_ms":500}}"#
        );
        let hold = Hold {
            client: 1,
            key: "L0".into(),
            owner: "o".into(),
            fence: Some(Fence(u64::MAX)),
        };
        let write = Op::Write(Write {
            hold,
            value: Item::Int(4),
            prev: None,
            stop_at: None,
        });
        assert_eq!(
            line(invocation(2, 7, &write).unwrap()),
            r#"{"process":7,"type":"invoke","f":"write","key":"L0","value":{"worker":2,"owner":"o","fence":18446744073709551615,"value":4,"prev":null}}"#
        );
        let granted = Answer::Granted(Granted {
            owner: "o".into(),
            fence: Some(Fence(3)),
            ttl_ms: None,
        });
        assert_eq!(
            line(completion(7, &"acquire".into(), &"L0".into(), &granted)),
            r#"{"process":7,"type":"ok","f":"acquire","key":"L0","value":{"owner":"o","fence":3,"ttl_ms":null}}"#
        );
        assert_eq!(
            line(unknown(7, &"write".into(), &"L0".into(), "gone")),
            r#"{"process":7,"type":"info","f":"write","key":"L0","value":null,"error":"gone"}"#
        );
    }

    #[test]
    fn the_end_of_a_server_is_told_with_its_last_words() {
        let ended = Ended {
            node: "node:1".into(),
            name: "etcd-1".into(),
            how: "exit status: 2".into(),
            log: vec!["no space".into()],
        };
        assert_eq!(
            line(node_exit(&ended)),
            r#"{"process":"n1","type":"info","f":"exit","value":{"node":"node:1","name":"etcd-1","reason":"exit status: 2","log":["no space"]}}"#
        );
    }

    #[test]
    fn events_of_workers_carry_after_as_a_stamp() {
        let lost = WorkerEvent::Lost {
            key: "L0".into(),
            owner: "o".into(),
            fence: None,
            reason: "deadline".into(),
            after: 9,
        };
        assert_eq!(
            line(grant_event(&"w1".into(), &lost, Stamp { index: 5, time: 6 }).unwrap()),
            r#"{"process":"w1","type":"info","f":"lost","key":"L0","value":{"owner":"o","fence":null,"reason":"deadline","after":{"index":5,"time":6}}}"#
        );
        assert_eq!(
            line(point(
                &"w0".into(),
                &"S".into(),
                &"before-store-write".into(),
                3,
                true
            )),
            r#"{"process":"w0","type":"info","f":"point","key":"S","value":{"name":"before-store-write","process":3,"state":"go"}}"#
        );
    }
}
