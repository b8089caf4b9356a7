#![allow(clippy::unwrap_used)]

use fencepost_history::Reader;

use super::build::{Builder, Built};
use super::*;

const MS: i64 = 1_000_000;

fn focus() -> Focus {
    Focus {
        key: Some("L".into()),
        from: 0,
        to: 10_000 * MS,
        steps: Vec::new(),
        why: String::new(),
    }
}

/// Builds from lines without index; times in ms; no margin.
fn built(lines: &[&str]) -> Built {
    let focus = focus();
    let margin = |_| 0;
    let mut builder = Builder::new(&focus, &margin);
    let bytes = lines.join("\n").into_bytes();
    for record in Reader::from_bytes(bytes).unwrap() {
        let mut event = record.unwrap().event;
        event.time *= MS;
        builder.push(&event);
    }
    builder.finish()
}

const ASK: &str =
    r#"{"time":100,"process":0,"type":"invoke","f":"acquire","key":"L","value":{"worker":0}}"#;
const GRANT: &str = r#"{"time":110,"process":0,"type":"ok","f":"acquire","key":"L","value":{"owner":"a","fence":33,"ttl_ms":1000}}"#;

#[test]
fn a_promise_counts_from_the_request() {
    let built = built(&[ASK, GRANT]);
    let hold = &built.holds[0];
    assert_eq!(hold.promised, Some(1_100 * MS));
    assert_eq!(hold.held_until(), Some(1_100 * MS));
    assert_eq!(hold.overstay(), None);
}

#[test]
fn a_release_ends_the_hold_before_its_promise() {
    let release = r#"{"time":500,"process":0,"type":"invoke","f":"release","key":"L","value":{"worker":0,"owner":"a","fence":33}}"#;
    let hold = &built(&[ASK, GRANT, release]).holds[0];
    assert_eq!(hold.held_until(), Some(500 * MS));
    assert_eq!(hold.overstay(), None);
    assert_eq!(hold.last(), 500 * MS);
}

#[test]
fn a_renewal_answered_ok_extends_and_an_unknown_one_does_not() {
    let renew = |ok: &str| {
        format!(
            r#"{{"time":700,"process":"w0","type":"info","f":"renew","key":"L","value":{{"owner":"a","fence":33,"ok":{ok},"ttl_ms":1000,"after":{{"index":1,"time":600000000}}}}}}"#
        )
    };
    let good = renew("true");
    assert_eq!(
        built(&[ASK, GRANT, &good]).holds[0].promised,
        Some(1_600 * MS)
    );
    let lost = renew("null");
    assert_eq!(
        built(&[ASK, GRANT, &lost]).holds[0].promised,
        Some(1_100 * MS)
    );
}

#[test]
fn a_claim_after_the_promise_is_an_overstay() {
    let claim = r#"{"time":1800,"process":"w0","type":"info","f":"claims","value":{"grants":[{"key":"L","owner":"a","fence":"33"}]}}"#;
    let hold = &built(&[ASK, GRANT, claim]).holds[0];
    assert_eq!(hold.held_until(), Some(1_100 * MS));
    assert_eq!(hold.overstay(), Some(1_800 * MS));
}

#[test]
fn a_loss_ends_the_hold_when_it_is_reported() {
    let lost = r#"{"time":900,"process":"w0","type":"info","f":"lost","key":"L","value":{"owner":"a","fence":33,"reason":"deadline","after":{"index":1,"time":800000000}}}"#;
    let built = built(&[ASK, GRANT, lost]);
    let hold = &built.holds[0];
    assert_eq!(hold.held_until(), Some(900 * MS));
    assert_eq!(hold.overstay(), None);
    assert_eq!(built.marks[0].1.what, "noticed the loss: deadline");
}

#[test]
fn a_lock_without_a_lease_is_held_until_it_ends() {
    let grant = r#"{"time":110,"process":0,"type":"ok","f":"acquire","key":"L","value":{"owner":"a","fence":null,"ttl_ms":null}}"#;
    let hold = &built(&[ASK, grant]).holds[0];
    assert_eq!(hold.held_until(), None);
    assert_eq!(hold.last(), i64::MAX);
}

#[test]
fn other_locks_and_other_owners_do_not_mix() {
    let other = ASK
        .replace("\"L\"", "\"M\"")
        .replace("process\":0", "process\":1");
    let granted = GRANT
        .replace("\"L\"", "\"M\"")
        .replace("process\":0", "process\":1");
    let write = r#"{"time":300,"process":2,"type":"invoke","f":"write","key":"L","value":{"worker":1,"owner":"b","fence":40,"value":"x"}}"#;
    let built = built(&[ASK, GRANT, &other, &granted, write]);
    assert_eq!(built.holds.len(), 1);
    assert_eq!(built.loose.len(), 1);
    assert_eq!(built.loose[0].0, Who::Worker(1));
    assert_eq!(built.loose[0].1.answer, Answer::Unknown);
}

fn op(fence: u64, invoked: i64, answered: Option<i64>) -> Op {
    let at = |time| At { time, index: fence };
    Op {
        f: "write".into(),
        owner: "a".into(),
        fence: Some(fence),
        value: Value::Null,
        invoked: at(invoked),
        answered: answered.map(at),
        answer: Answer::Accepted,
    }
}

fn placed(ops: &[Op], order: &[u64]) -> Vec<(u64, i64)> {
    let mut placer = store::Placer::new(ops.iter());
    for (seq, fence) in order.iter().enumerate() {
        placer.push(&StoreEntry {
            seq: seq as u64,
            op: "write".into(),
            key: "L".into(),
            fence: Some(*fence),
            owner: Some("a".into()),
            value: Value::Null,
            accepted: true,
            highest: Some(*order[..=seq].iter().max().unwrap()),
        });
    }
    placer
        .finish()
        .iter()
        .map(|m| (m.fence.unwrap(), m.time))
        .collect()
}

#[test]
fn a_paused_write_stands_at_its_end_in_the_stores_order() {
    let ops = [op(33, 0, Some(900)), op(34, 300, Some(320))];
    assert_eq!(placed(&ops, &[34, 33]), [(34, 320), (33, 900)]);
}

#[test]
fn the_stores_order_bounds_what_came_before() {
    let ops = [op(33, 0, Some(900)), op(34, 300, Some(320))];
    assert_eq!(placed(&ops, &[33, 34]), [(33, 320), (34, 320)]);
}

#[test]
fn an_unanswered_write_stands_as_early_as_it_can() {
    let ops = [op(33, 0, None), op(34, 300, Some(320))];
    assert_eq!(placed(&ops, &[34, 33]), [(34, 300), (33, 300)]);
}

#[test]
fn lanes_keep_the_story_when_there_is_too_much() {
    let focus = Focus {
        steps: vec![(5, 50)],
        ..focus()
    };
    let hold = |n: u64| Hold {
        who: Who::Worker(n % 30),
        process: n,
        owner: n.to_string(),
        fence: Some(n),
        asked: At {
            time: n as i64,
            index: n,
        },
        granted: At {
            time: n as i64,
            index: n,
        },
        ttl: None,
        promised: Some(n as i64 + 1),
        renewals: Vec::new(),
        believed: 0,
        end: None,
        ops: Vec::new(),
    };
    let built = Built {
        holds: (0..1_000).map(hold).collect(),
        ..Built::default()
    };
    let timeline = lanes::arrange(built, &focus);
    assert!(timeline.lanes.len() <= lanes::MAX_LANES);
    assert!(timeline.lanes.iter().any(|l| l.who == Who::Worker(5)));
    assert_eq!(timeline.cut.len(), 2, "{:?}", timeline.cut);
}

#[test]
fn ticks_are_few_and_round() {
    for length in [1, 7, 1_000, 3_187 * MS, 120_000 * MS, i64::MAX / 2] {
        let step = draw::tick_step(length);
        assert!(length / step <= 12, "{length}");
    }
    assert_eq!(draw::tick_step(3_187 * MS), 500 * MS);
}
