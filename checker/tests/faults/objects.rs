//! Registers, key-value stores, queues, sets and transactions, for the oracle: what each call does and answers.

use fencepost_history::Value;

use crate::oracle::{Object, Op, int};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Values are distinct, unless there is compare-and-set.
    Register {
        cas: bool,
    },
    /// With fences; reads have one too if `raise`.
    Fenced {
        raise: bool,
    },
    Kv,
    Queue,
    Set,
    /// Registers 0, 1 and 2, read and written by transactions.
    Transactions,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Data {
    /// Value, and highest fence.
    Number(i128, i128),
    Text(String),
    List(Vec<i128>),
}

/// What a call answers: `None` that it did nothing, null no more than that it worked.
type Answer = Option<Value>;

pub fn number(v: &Value) -> i128 {
    match v {
        Value::Int(i) => *i,
        _ => -1,
    }
}

pub fn list(all: &[i128]) -> Value {
    Value::List(all.iter().map(|i| Value::Int(*i)).collect())
}

fn numbers(v: &Value) -> Vec<i128> {
    match v {
        Value::List(l) => l.iter().map(number).collect(),
        _ => Vec::new(),
    }
}

const DONE: Answer = Some(Value::Null);

/// The answer to a call, and the state after it.
pub fn call(s: &Data, f: &str, asked: &Value) -> (Answer, Data) {
    match s {
        Data::Number(value, fence) => register(*value, *fence, f, asked),
        Data::Text(text) => {
            let more = asked.as_str().unwrap_or("");
            match f {
                "put" => (DONE, Data::Text(more.to_owned())),
                "append" => (DONE, Data::Text(format!("{text}{more}"))),
                _ => (Some(Value::Str(text.as_str().into())), s.clone()),
            }
        }
        Data::List(all) => {
            let mut next = all.clone();
            let answer = match f {
                "txn" => transaction(&mut next, asked),
                _ => collection(&mut next, f, number(asked)),
            };
            (answer, Data::List(next))
        }
    }
}

fn register(value: i128, highest: i128, f: &str, asked: &Value) -> (Answer, Data) {
    let fence = int(asked, "fence");
    let same = Data::Number(value, highest);
    if fence.is_some_and(|n| n < highest) {
        return (None, same);
    }
    let highest = highest.max(fence.unwrap_or(0));
    match f {
        "read" => (Some(Value::Int(value)), Data::Number(value, highest)),
        "cas" => match numbers(asked)[..] {
            [old, new] if old == value => (DONE, Data::Number(new, highest)),
            _ => (None, same),
        },
        _ => {
            let new = asked.get("value").unwrap_or(asked);
            (DONE, Data::Number(number(new), highest))
        }
    }
}

fn collection(all: &mut Vec<i128>, f: &str, v: i128) -> Answer {
    match f {
        "enqueue" => all.push(v),
        "dequeue" => {
            return (!all.is_empty()).then(|| Value::Int(all.remove(0)));
        }
        "contains" => return Some(Value::Bool(all.contains(&v))),
        "read" => return Some(list(all)),
        _ => {
            all.retain(|x| *x != v);
            if f == "add" {
                all.push(v);
            }
            all.sort_unstable();
        }
    }
    DONE
}

fn transaction(all: &mut [i128], asked: &Value) -> Answer {
    let Value::List(micros) = asked else {
        return None;
    };
    let mut done = Vec::new();
    for m in micros {
        let Value::List(m) = m else { return None };
        let at = number(&m[1]) as usize;
        let read = m[0].as_str() == Some("r");
        if !read {
            all[at] = number(&m[2]);
        }
        done.push(Value::List(vec![
            m[0].clone(),
            m[1].clone(),
            Value::Int(all[at]),
        ]));
    }
    Some(Value::List(done))
}

impl Object for Kind {
    type State = Data;

    fn start(&self) -> Data {
        match self {
            Kind::Register { .. } | Kind::Fenced { .. } => Data::Number(0, 0),
            Kind::Kv => Data::Text(String::new()),
            Kind::Queue | Kind::Set => Data::List(Vec::new()),
            Kind::Transactions => Data::List(vec![0; 3]),
        }
    }

    fn steps(&self, s: &Data, op: &Op, _: &[i128]) -> Vec<Data> {
        let (answer, next) = call(s, &op.f, &op.asked);
        let tells = matches!(
            (self, op.f.as_str()),
            (Kind::Fenced { .. }, "write") | (Kind::Fenced { raise: true }, "read")
        ) || matches!(op.f.as_str(), "cas" | "dequeue");
        let fits = match (op.ret, op.failed) {
            (None, _) => true,
            // What could not have failed did not happen.
            (_, true) if !tells => return vec![s.clone()],
            (_, true) => answer.is_none(),
            (_, false) => answer.is_some_and(|a| a == Value::Null || a == op.answer),
        };
        fits.then_some(next).into_iter().collect()
    }

    fn told(&self, state: &serde_json::Value, _: &[i128]) -> Vec<Data> {
        use serde_json::Value as Json;
        let one = |v: &Json| v.as_i64().map(i128::from).unwrap();
        let data = match (self, state) {
            (Kind::Fenced { .. }, s) => Data::Number(one(&s["value"]), one(&s["fence"])),
            (Kind::Transactions, Json::Object(m)) => {
                let of = |n: i32| m.get(&n.to_string()).map_or(0, one);
                Data::List(vec![of(0), of(1), of(2)])
            }
            (kind, Json::Array(all)) => {
                let mut all: Vec<i128> = all.iter().map(one).collect();
                if *kind == Kind::Set {
                    all.sort_unstable();
                }
                Data::List(all)
            }
            (_, Json::String(text)) => Data::Text(text.clone()),
            // A text that no read to come can show.
            (Kind::Kv, _) => Data::Text("?".to_owned()),
            (_, n) => Data::Number(one(n), 0),
        };
        vec![data]
    }
}
