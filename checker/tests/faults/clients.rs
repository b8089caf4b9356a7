//! Clients of the oracle's objects, the good histories that they make, and what goes wrong in those.

use fencepost_checker::generate::Rng;
use fencepost_history::{Event, EventType, Process, Value};

use crate::objects::{Kind, call, list, number};
use crate::oracle::Object;

struct Pending {
    process: u64,
    f: &'static str,
    asked: Value,
    /// Once it took effect.
    answer: Option<Option<Value>>,
}

/// What a client asks for next.
fn wish(kind: Kind, rng: &mut Rng) -> (&'static str, Value) {
    let small = |rng: &mut Rng| Value::Int(i128::from(rng.below(4)));
    let large = |rng: &mut Rng| Value::Int(1 + i128::from(rng.below(1 << 30)));
    match (kind, rng.below(10)) {
        (Kind::Register { .. }, 0..4) => ("read", Value::Null),
        (Kind::Register { cas: true }, 4..8) => ("cas", Value::List(vec![small(rng), small(rng)])),
        (Kind::Register { cas: true }, _) => ("write", small(rng)),
        (Kind::Register { cas: false }, _) => ("write", large(rng)),
        (Kind::Fenced { raise: false }, 0..5) => ("read", Value::Null),
        (Kind::Fenced { .. }, n) => {
            let fence = ("fence".into(), Value::Int(i128::from(rng.below(5))));
            let value = ("value".into(), large(rng));
            match n < 5 {
                true => ("read", Value::Map(vec![fence])),
                false => ("write", Value::Map(vec![value, fence])),
            }
        }
        (Kind::Kv, 0..5) => ("get", Value::Null),
        (Kind::Kv, n) => {
            let text = Value::Str(["a", "b", "c"][rng.below(3) as usize].into());
            (if n < 6 { "put" } else { "append" }, text)
        }
        (Kind::Queue, 0..5) => ("dequeue", Value::Null),
        (Kind::Queue, _) => ("enqueue", small(rng)),
        (Kind::Set, 0..4) => ("read", Value::Null),
        (Kind::Set, 4..8) => ("add", small(rng)),
        (Kind::Set, 8) => ("remove", small(rng)),
        (Kind::Set, _) => ("contains", small(rng)),
        (Kind::Transactions, _) => {
            let micro = |rng: &mut Rng| {
                let register = Value::Int(i128::from(rng.below(3)));
                let (f, v) = match rng.percent(60) {
                    true => ("r", Value::Null),
                    false => ("w", small(rng)),
                };
                Value::List(vec![Value::Str(f.into()), register, v])
            };
            let n = 1 + rng.below(2);
            ("txn", Value::List((0..n).map(|_| micro(rng)).collect()))
        }
    }
}

fn failure(f: &str) -> &'static str {
    match f {
        "cas" => "mismatch",
        "dequeue" => "empty",
        _ => "stale-fence",
    }
}

/// A good history. Every operation has a process of its own.
pub fn history(
    kind: Kind,
    clients: u64,
    operations: u64,
    unknown: u64,
    rng: &mut Rng,
) -> Vec<Event> {
    let mut state = kind.start();
    let mut open: Vec<Pending> = Vec::new();
    // Of unknown outcome: they may take effect at any later time, or never.
    let mut lost: Vec<Pending> = Vec::new();
    let (mut events, mut called) = (Vec::new(), 0);
    let push = |events: &mut Vec<Event>, p: &Pending, kind, value, error: Option<&str>| {
        events.push(Event {
            index: 0,
            time: 0,
            process: Process::Client(p.process),
            kind,
            f: p.f.into(),
            key: None,
            value,
            error: error.map(Into::into),
        });
    };
    while called < operations || !open.is_empty() {
        if !lost.is_empty() && rng.percent(10) {
            let p = lost.swap_remove(rng.below(lost.len() as u64) as usize);
            state = call(&state, p.f, &p.asked).1;
        }
        let at = rng.below(clients) as usize;
        if at >= open.len() {
            if called < operations {
                let (f, asked) = wish(kind, rng);
                let p = Pending {
                    process: called,
                    f,
                    asked: asked.clone(),
                    answer: None,
                };
                push(&mut events, &p, EventType::Invoke, asked, None);
                open.push(p);
                called += 1;
            }
        } else if rng.percent(unknown) {
            let p = open.swap_remove(at);
            if rng.percent(50) {
                push(&mut events, &p, EventType::Info, Value::Null, None);
            }
            if p.answer.is_none() {
                lost.push(p);
            }
        } else if open[at].answer.is_none() {
            if rng.percent(60) {
                let (answer, next) = call(&state, open[at].f, &open[at].asked);
                open[at].answer = Some(answer);
                state = next;
            }
        } else {
            let p = open.swap_remove(at);
            match p.answer.clone().flatten() {
                Some(v) => push(&mut events, &p, EventType::Ok, v, None),
                None => {
                    let error = Some(failure(p.f));
                    push(&mut events, &p, EventType::Fail, Value::Null, error);
                }
            }
        }
    }
    number_all(&mut events);
    events
}

fn number_all(events: &mut [Event]) {
    for (i, e) in (0..).zip(events) {
        (e.index, e.time) = (i, i as i64);
    }
}

/// Does one thing wrong.
pub fn inject(kind: Kind, events: &mut Vec<Event>, rng: &mut Rng) {
    if events.is_empty() {
        return;
    }
    let at = rng.below(events.len() as u64) as usize;
    let answered: Vec<usize> = (0..events.len())
        .filter(|&i| matches!(events[i].kind, EventType::Ok | EventType::Fail))
        .collect();
    let some = |rng: &mut Rng| {
        let n = (answered.len() as u64).max(1);
        answered.get(rng.below(n) as usize).copied()
    };
    match (rng.below(8), some(rng)) {
        (0, _) => {
            let p = events[at].process.clone();
            events.retain(|e| e.process != p);
        }
        (1, Some(i)) => drop(events.remove(i)),
        (2, Some(i)) => turn(kind, &mut events[i]),
        (3..5, Some(i)) => answer(kind, events, i, rng),
        _ => {
            for _ in 0..1 + rng.below(4) {
                slide(events, rng);
            }
        }
    }
    number_all(events);
}

/// A success is told as a failure, or a failure as a success.
fn turn(kind: Kind, e: &mut Event) {
    if e.kind == EventType::Ok {
        (e.kind, e.error) = (EventType::Fail, Some(failure(&e.f).into()));
        e.value = Value::Null;
    } else if matches!(kind, Kind::Register { .. } | Kind::Fenced { .. }) {
        (e.kind, e.error) = (EventType::Ok, None);
        if e.f.as_ref() == "read" {
            e.value = Value::Int(0);
        }
    }
}

/// Another answer than the object gave.
fn answer(kind: Kind, events: &mut [Event], i: usize, rng: &mut Rng) {
    if events[i].kind != EventType::Ok {
        return;
    }
    let other = |events: &[Event], rng: &mut Rng| {
        let same: Vec<&Event> = events
            .iter()
            .filter(|e| e.kind == EventType::Ok && e.f == events[i].f)
            .collect();
        same[rng.below(same.len() as u64) as usize].value.clone()
    };
    let now = events[i].value.clone();
    events[i].value = match (kind, now) {
        (_, Value::Null) => Value::Null,
        (_, Value::Bool(b)) => Value::Bool(!b),
        (Kind::Transactions, Value::List(mut micros)) => {
            let at = rng.below(micros.len() as u64) as usize;
            if let Value::List(m) = &mut micros[at]
                && m[0].as_str() == Some("r")
            {
                m[2] = Value::Int(i128::from(rng.below(4)));
            }
            Value::List(micros)
        }
        // An element is lost from what was read, or one comes back.
        (Kind::Set, Value::List(all)) => {
            let v = i128::from(rng.below(4));
            let mut set: Vec<i128> = all.iter().map(number).collect();
            match set.iter().position(|x| *x == v) {
                Some(at) => drop(set.remove(at)),
                None => set.push(v),
            }
            set.sort_unstable();
            list(&set)
        }
        // An append is lost from what was read, or two change places.
        (Kind::Kv, Value::Str(text)) if rng.percent(60) && text.len() > 1 => {
            let mut text: Vec<char> = text.chars().collect();
            let at = rng.below(text.len() as u64 - 1) as usize;
            match rng.percent(50) {
                true => text.swap(at, at + 1),
                false => drop(text.remove(at)),
            }
            Value::Str(text.into_iter().collect::<String>().into())
        }
        _ => other(events, rng),
    };
}

/// Swaps two neighbours of different operations: an interval shrinks or grows, or an order turns round.
fn slide(events: &mut [Event], rng: &mut Rng) {
    if events.len() < 2 {
        return;
    }
    let at = rng.below(events.len() as u64 - 1) as usize;
    if events[at].process != events[at + 1].process {
        events.swap(at, at + 1);
    }
}
