#![allow(clippy::unwrap_used)]
//! Histories with events shuffled, dropped, doubled and changed, in every format, against every model: a verdict or an
//! error, never a panic.

use std::fmt::Write;

use fencepost_checker::generate::events::{of_lock, of_register};
use fencepost_checker::generate::locks::{Habits, LockClients};
use fencepost_checker::generate::registers::{Mix, RegClients};
use fencepost_checker::generate::{MODELS, Rng, Shape, history};
use fencepost_checker::models::locks::FencedMutex;
use fencepost_checker::models::register::Register;
use fencepost_checker::{Engine, Options, check_history, check_records};
use fencepost_history::{Event, EventType, Process, Reader, Value, json, read_bytes};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Change {
    Drop(usize),
    Double(usize, usize),
    Swap(usize, usize),
    Kind(usize, usize),
    Value(usize, usize),
    Word(usize, usize),
    Process(usize, u64),
    Index(usize, u64),
    Error(usize),
}

fn change() -> impl Strategy<Value = Change> {
    let at = || 0..100usize;
    prop_oneof![
        at().prop_map(Change::Drop),
        (at(), at()).prop_map(|(a, b)| Change::Double(a, b)),
        (at(), at()).prop_map(|(a, b)| Change::Swap(a, b)),
        (at(), at()).prop_map(|(a, k)| Change::Kind(a, k)),
        (at(), at()).prop_map(|(a, b)| Change::Value(a, b)),
        (at(), at()).prop_map(|(a, w)| Change::Word(a, w)),
        (at(), 0..3u64).prop_map(|(a, p)| Change::Process(a, p)),
        (at(), any::<u64>()).prop_map(|(a, n)| Change::Index(a, n)),
        at().prop_map(Change::Error),
    ]
}

fn apply(events: &mut Vec<Event>, change: &Change) {
    let len = events.len();
    if len == 0 {
        return;
    }
    match *change {
        Change::Drop(a) => drop(events.remove(a % len)),
        Change::Double(a, b) => events.insert(b % len, events[a % len].clone()),
        Change::Swap(a, b) => events.swap(a % len, b % len),
        Change::Kind(a, k) => {
            use EventType::{Fail, Info, Invoke, Ok};
            events[a % len].kind = [Invoke, Ok, Fail, Info][k % 4];
        }
        Change::Value(a, b) => events[a % len].value = events[b % len].value.clone(),
        Change::Word(a, w) => {
            let words = [
                "acquire", "release", "read", "cas", "get", "txn", "dequeue", "add",
            ];
            events[a % len].f = words[w % words.len()].into();
        }
        Change::Process(a, p) => events[a % len].process = Process::Client(p),
        Change::Index(a, n) => events[a % len].index = n,
        Change::Error(a) => events[a % len].error = Some("busy".into()),
    }
}

fn edn(v: &Value) -> String {
    let all = |l: &[Value]| l.iter().map(edn).collect::<Vec<_>>().join(" ");
    match v {
        Value::Null => "nil".into(),
        Value::Str(s) => format!("{s:?}"),
        Value::List(l) => format!("[{}]", all(l)),
        Value::Map(m) => {
            let members: Vec<String> = m.iter().map(|(k, v)| format!(":{k} {}", edn(v))).collect();
            format!("{{{}}}", members.join(", "))
        }
        other => {
            let mut text = Vec::new();
            json::write_value(&mut text, other);
            String::from_utf8(text).unwrap()
        }
    }
}

fn written(events: &[Event], format: usize) -> Vec<u8> {
    let (mut bytes, mut text) = (Vec::new(), String::new());
    for e in events {
        let kind = format!("{:?}", e.kind).to_lowercase();
        let process = match &e.process {
            Process::Client(p) => p.to_string(),
            Process::Named(n) => format!(":{n}"),
        };
        let error = e.error.as_ref().map(|e| format!(", :error {e:?}"));
        let (index, time, f, value) = (e.index, e.time, &e.f, edn(&e.value));
        match format {
            0 => json::write_event(&mut bytes, e),
            1 => writeln!(
                text,
                "{{:index {index}, :time {time}, :process {process}, :type :{kind}, :f :{f}, :value {value}{}}}",
                error.unwrap_or_default()
            )
            .unwrap(),
            _ => writeln!(text, "{process}\t:{kind}\t:{f}\t{value}").unwrap(),
        }
    }
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

fn events(seed: u64, of: usize) -> Vec<Event> {
    let mut rng = Rng(seed);
    let shape = Shape {
        clients: 3,
        operations: 12,
        unknown: 10,
        lag: 40,
    };
    if of == 0 {
        let habits = Habits {
            fences: true,
            tries: 20,
            ..Habits::owned()
        };
        let mut clients = LockClients::new(FencedMutex { leased: false }, habits, 3);
        return of_lock(&history(&mut clients, shape, &mut rng)).collect();
    }
    let mix = Mix {
        reads: 40,
        cas: 30,
        values: 4,
        ..Mix::default()
    };
    let mut clients = RegClients::new(Register { initial: 0 }, mix);
    of_register(&history(&mut clients, shape, &mut rng)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn mangled_histories_never_panic(
        seed in any::<u64>(),
        (of, format) in (0..2usize, 0..3usize),
        renumbered in any::<bool>(),
        changes in proptest::collection::vec(change(), 0..12),
        bytes in proptest::collection::vec((0..20_000usize, any::<u8>()), 0..3),
    ) {
        let mut all = events(seed, of);
        for change in &changes {
            apply(&mut all, change);
        }
        for (n, e) in (0..).zip(&mut all) {
            if renumbered {
                e.index = n;
            }
        }
        let mut file = written(&all, format);
        for (at, byte) in bytes {
            let len = file.len().max(1);
            if let Some(b) = file.get_mut(at % len) {
                *b = byte;
            }
        }
        let options = Options {
            engine: Engine::Both,
            max_states: Some(20_000),
            parallel: false,
            ..Options::default()
        };
        let whole = read_bytes(file.clone());
        for model in MODELS {
            if let Ok(h) = &whole {
                // An error or a verdict; a disagreement of the engines is a fault of theirs.
                if let Err(e) = check_history(h, model, None, &options) {
                    prop_assert!(!e.to_string().contains("internal"), "{model}: {e}");
                }
            }
            if let Ok(reader) = Reader::from_bytes(file.clone()) {
                let _ = check_records(reader.map_while(Result::ok), model, None, &options);
            }
        }
    }

    /// What was not changed reads the same in every format.
    #[test]
    fn whole_histories_read_alike(seed in any::<u64>(), of in 0..2usize) {
        let all = events(seed, of);
        for format in 0..2 {
            let read = read_bytes(written(&all, format)).unwrap();
            prop_assert_eq!(&read.events, &all, "format {}", format);
        }
        let text = read_bytes(written(&all, 2)).unwrap();
        prop_assert_eq!(text.events.len(), all.len());
    }
}
