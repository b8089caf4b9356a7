//! Histories that make no sense: events dropped, doubled, moved, changed. Some answer, never a panic.

use std::fs;

use fencepost_checker::checks::Lineup;
use fencepost_checker::judge::{Live, judge};
use fencepost_history::{Event, EventType, Value, json};
use proptest::prelude::*;

use crate::script::{Script, script};
use crate::simulation::{Bug, facts, history};

/// Every kind of event there is.
fn varied() -> Script {
    script()
        .grant(0, "a", 33)
        .claims(0, "a", 33, 2)
        .t(100)
        .wr(0, "a", 33, "v1", "null")
        .point(0, "reached")
        .fault_on("pause", "worker:0")
        .point(0, "go")
        .acq(1)
        .named("w1", "queued", r#"{"process":1}"#)
        .t(1100)
        .got(1, "b", 34)
        .renewed(1, "b", 34, "true", 1101)
        .wr(1, "b", 34, "v2", "null")
        .ok(1)
        .add(1, "b", 34, 7)
        .ok(1)
        .t(1500)
        .fault_off("pause", "worker:0")
        .ok(0)
        .lost(0, "a", 33, 1509)
        .named("control", "phase", r#"{"phase":"healed"}"#)
        .rel(1, "b", 34)
        .held(1, true)
        .acq_mode(2, "shared")
        .info(2)
        .named("w1", "exit", "{}")
        .last(r#"{"value":"v1","set":[7]}"#)
        .log("write", "b", 34, "v2", true)
        .log("add", "b", 34, "7", true)
        .log("write", "a", 33, "v1", true)
}

/// One thing done to a history.
#[derive(Clone, Debug)]
enum Change {
    Drop(usize),
    Double(usize, usize),
    Swap(usize, usize),
    Kind(usize, u8),
    Value(usize, usize),
    Number(usize, u64),
    Time(usize, i64),
    Key(usize),
}

fn change() -> impl Strategy<Value = Change> {
    let at = || 0..400usize;
    prop_oneof![
        at().prop_map(Change::Drop),
        (at(), at()).prop_map(|(a, b)| Change::Double(a, b)),
        (at(), at()).prop_map(|(a, b)| Change::Swap(a, b)),
        (at(), 0..4u8).prop_map(|(a, k)| Change::Kind(a, k)),
        (at(), at()).prop_map(|(a, b)| Change::Value(a, b)),
        (at(), any::<u64>()).prop_map(|(a, n)| Change::Number(a, n)),
        (at(), any::<i64>()).prop_map(|(a, t)| Change::Time(a, t)),
        at().prop_map(Change::Key),
    ]
}

/// Some number of a value, at the top or one level down.
fn number(v: &mut Value, n: u64) {
    let Value::Map(members) = v else {
        *v = Value::Int(i128::from(n) - 7);
        return;
    };
    if let Some((_, member)) = members.last_mut() {
        number(member, n);
    }
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
            events[a % len].kind = [Invoke, Ok, Fail, Info][usize::from(k)];
        }
        Change::Value(a, b) => events[a % len].value = events[b % len].value.clone(),
        Change::Number(a, n) => number(&mut events[a % len].value, n),
        Change::Time(a, t) => events[a % len].time = t,
        Change::Key(a) => events[a % len].key = None,
    }
}

fn feed(base: &Script, events: &[Event]) {
    let mut live = Live::new(&base.facts);
    let mut lineup = Lineup::new(&base.facts);
    for e in events {
        live.push(e);
        lineup.event(e);
    }
    for op in base.store.iter().rev() {
        live.push_store(op);
        lineup.store_again(op);
    }
    for (name, r) in lineup.finish() {
        assert!(!r.reason.is_empty(), "{name} gives no reason");
        assert!(
            r.evidence.len() <= 40 && r.story.len() <= 40,
            "{name}: {r:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn changed_histories_get_some_answer(
        seed in any::<u64>(),
        simulated in any::<bool>(),
        changes in proptest::collection::vec(change(), 1..24),
    ) {
        let base = varied();
        let mut events = match simulated {
            true => history(seed, Bug::Grants, 60),
            false => base.events.clone(),
        };
        for change in &changes {
            apply(&mut events, change);
        }
        feed(&base, &events);
    }

    /// The same as files, lines and bytes alike: a verdict, or an error that says what.
    #[test]
    fn changed_folders_get_some_answer(
        changes in proptest::collection::vec(change(), 1..8),
        bytes in proptest::collection::vec((0..20_000usize, any::<u8>()), 0..4),
        renumbered in any::<bool>(),
    ) {
        let base = varied();
        let mut events = base.events;
        for change in &changes {
            apply(&mut events, change);
        }
        let mut text = Vec::new();
        for (n, mut e) in events.into_iter().enumerate() {
            if renumbered {
                e.index = n as u64;
            }
            json::write_event(&mut text, &e);
        }
        for (at, byte) in bytes {
            let len = text.len().max(1);
            if let Some(b) = text.get_mut(at % len) {
                *b = byte;
            }
        }
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("run.json"), r#"{"system":{"lease":true,"fence":true}}"#).unwrap();
        fs::write(dir.path().join("history.jsonl"), text).unwrap();
        let verdict = judge(dir.path());
        prop_assert!(verdict.is_ok_and(|v| !v.reason.is_empty()));
    }
}

#[test]
fn the_unchanged_history_makes_sense() {
    varied()
        .holds("double-holder.service")
        .violates("stale-fence-accepted");
    feed(&varied(), &history(1, Bug::None, 60));
    assert!(facts().system.lease);
}
