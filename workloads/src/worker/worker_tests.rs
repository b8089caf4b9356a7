#![allow(clippy::unwrap_used)]
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::bench::{Bench, Running};
use super::*;

fn with(mut grant: Value, more: Value) -> Value {
    let fields = grant.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    grant
}

fn noop(params: Value) -> Value {
    json!({"name":"noop","params":params})
}

#[tokio::test]
async fn a_cycle_goes_through_and_the_watchdog_keeps_the_lease() {
    let mut b = Bench::new(noop(json!({})), true).await;
    let g = b.grant(2, 300).await;
    assert_eq!(b.claims(3).await, 1);
    let renewal = b.event("renew").await;
    assert_eq!(
        (&renewal["ok"], &renewal["after"]),
        (&json!(true), &json!(3))
    );
    b.event("renew").await;
    let read = b.ask(with(g.clone(), json!({"id":4,"op":"read"}))).await;
    assert_eq!(
        (read["type"].as_str(), &read["value"]["value"]),
        (Some("ok"), &Value::Null)
    );
    let write = json!({"id":5,"op":"write","value":"v1","prev":null});
    assert_eq!(b.ask(with(g.clone(), write)).await["type"], "ok");
    let add = json!({"id":6,"op":"add","element":"e1","work_ms":5});
    assert_eq!(b.ask(with(g.clone(), add)).await["type"], "ok");
    let done = b.ask(with(g, json!({"id":7,"op":"release"}))).await;
    assert_eq!(done["value"]["held"], true);
    assert_eq!(b.claims(8).await, 0);
    assert_eq!(b.ask(json!({"id":9,"op":"close"})).await["type"], "ok");
    let ops: Vec<Value> = b.stored().iter().map(|l| l["op"].clone()).collect();
    assert_eq!(ops, ["read", "write", "read", "add"]);
}

#[tokio::test]
async fn without_a_watchdog_the_lease_is_lost_at_the_deadline_and_writes_stop() {
    let mut b = Bench::new(noop(json!({"watchdog":false})), true).await;
    let began = Instant::now();
    let g = b.grant(2, 200).await;
    let lost = b.event("lost").await;
    assert!(
        began.elapsed() < Duration::from_millis(200),
        "before the service ends it"
    );
    assert_eq!(
        (&lost["reason"], &lost["after"]),
        (&json!("deadline"), &json!(2))
    );
    assert_eq!(b.claims(3).await, 0);
    let write = json!({"id":4,"op":"write","value":"v1","prev":null});
    assert_eq!(b.ask(with(g.clone(), write)).await["error"], "deadline");
    let again = b.ask(with(g, json!({"id":5,"op":"release"}))).await;
    assert_eq!(
        again["type"], "ok",
        "a lost grant is still released at the service"
    );
}

#[tokio::test]
async fn a_dead_watchdog_goes_unnoticed_where_that_is_the_bug() {
    let mut b = Bench::new(noop(json!({"bug":"A10"})), true).await;
    let g = b.grant(2, 150).await;
    b.event("renew").await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(b.claims(3).await, 1, "long past its lease");
    let write = json!({"id":4,"op":"write","value":"v1","prev":null});
    assert_eq!(b.ask(with(g, write)).await["type"], "ok");
}

#[tokio::test]
async fn a_write_stops_at_the_point_past_its_deadline_check() {
    let mut b = Bench::new(noop(json!({"watchdog":false})), false).await;
    let g = b.grant(2, 200).await;
    let write =
        json!({"id":3,"op":"write","value":"v1","prev":null,"stop_at":"before-store-write"});
    b.send(with(g.clone(), write)).await;
    assert_eq!(b.event("point").await["id"], 3);
    b.event("lost").await;
    let other = with(g, json!({"id":4,"client":1,"op":"read"}));
    assert_eq!(b.ask(other).await["type"], "ok", "other clients go on");
    b.send(json!({"go":3})).await;
    assert_eq!(b.answer(3).await["type"], "ok", "the check is behind it");
    assert_eq!(b.stored()[1]["value"], "v1");
}

#[tokio::test]
async fn a_refused_fence_is_definite_and_a_lost_answer_is_not() {
    let mut b = Bench::new(noop(json!({})), true).await;
    let first = b.grant(2, 5000).await;
    let second = b.grant(3, 5000).await;
    b.ask(with(second, json!({"id":4,"op":"read"}))).await;
    let write = json!({"id":5,"op":"write","value":"v1","prev":null});
    let got = b.ask(with(first, write)).await;
    assert_eq!(
        (&got["type"], &got["error"]),
        (&json!("fail"), &json!("stale-fence"))
    );
}

#[tokio::test]
async fn what_cannot_be_done_is_said() {
    let mut b = Bench::new(noop(json!({})), true).await;
    let far = json!({"id":2,"op":"acquire","client":9,"key":"L0"});
    assert!(
        b.ask(far).await["error"]
            .as_str()
            .unwrap()
            .contains("no client 9")
    );
    let bad = json!({"id":3,"op":"init","protocol":2,"worker":0,"clients":1,"system":noop(json!({})),
        "store":{"kind":"none"},"timeout_ms":5});
    assert!(
        b.ask(bad).await["error"]
            .as_str()
            .unwrap()
            .contains("protocol 2")
    );
    b.send(json!({"id":4,"op":"steal"})).await;
    let Running::Task(task) = b.running else {
        panic!()
    };
    let end = tokio::time::timeout(Duration::from_secs(5), task).await;
    assert_eq!(
        format!("{:?}", end.unwrap().unwrap()),
        format!("{:?}", ExitCode::from(EXIT_PROTOCOL))
    );
}

#[tokio::test]
async fn a_redis_worker_keeps_others_out() {
    let Some(server) = crate::testing::redis() else {
        return;
    };
    let system = json!({"name":"redis","endpoints":[{"name":"n0","addr":server.addr}]});
    let mut b = Bench::new(system, true).await;
    let g = b.grant(2, 300).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let busy = b
        .ask(json!({"id":3,"op":"acquire","client":1,"key":"L0","ttl_ms":300,"wait_ms":0}))
        .await;
    assert_eq!(busy["error"], "busy", "the watchdog renewed");
    let waiting = json!({"id":4,"op":"acquire","client":1,"key":"L0","ttl_ms":300,"wait_ms":3000});
    b.send(waiting).await;
    b.ask(with(g, json!({"id":5,"op":"release"}))).await;
    assert_eq!(b.answer(4).await["type"], "ok");
}

#[tokio::test]
async fn the_python_worker_does_all_that_ours_does() {
    let Some(server) = crate::testing::redis() else {
        return;
    };
    let system = json!({"name":"redis","endpoints":[{"name":"n0","addr":server.addr}]});
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../examples/workers/redis_lock.py"
    );
    let Some(mut b) = Bench::program(&["python3", script], system, true).await else {
        return;
    };
    let g = b.grant(2, 400).await;
    assert_eq!(b.claims(3).await, 1);
    assert_eq!(b.event("renew").await["after"], 3);
    let busy = json!({"id":4,"op":"acquire","client":1,"key":"L0","ttl_ms":400,"wait_ms":100});
    assert_eq!(b.ask(busy).await["error"], "busy");
    let read = b.ask(with(g.clone(), json!({"id":5,"op":"read"}))).await;
    assert_eq!(read["value"]["value"], Value::Null);
    let stop = json!({"id":6,"op":"write","value":"v1","prev":null,"stop_at":"before-store-write"});
    b.send(with(g.clone(), stop)).await;
    assert_eq!(b.event("point").await["id"], 6);
    b.send(json!({"go":6})).await;
    assert_eq!(b.answer(6).await["type"], "ok");
    let add = json!({"id":7,"op":"add","element":"e1","work_ms":1});
    assert_eq!(b.ask(with(g.clone(), add)).await["type"], "ok");
    assert_eq!(
        b.ask(with(g.clone(), json!({"id":8,"op":"release"}))).await["value"]["held"],
        true
    );
    assert_eq!(b.claims(9).await, 0);
    let newer = b.grant(10, 400).await;
    assert_eq!(
        b.ask(with(newer, json!({"id":11,"op":"read"}))).await["type"],
        "ok"
    );
    let late = json!({"id":12,"op":"write","value":"v2","prev":"v1"});
    assert_eq!(
        b.ask(with(g, late)).await["error"],
        "deadline",
        "released: its own check refuses"
    );
    assert_eq!(b.ask(json!({"id":13,"op":"close"})).await["type"], "ok");
    let ops: Vec<Value> = b.stored().iter().map(|l| l["op"].clone()).collect();
    assert_eq!(ops, ["read", "write", "read", "add", "read"]);
}

#[tokio::test]
async fn the_python_worker_loses_its_lease_when_redis_is_gone() {
    let Some(server) = crate::testing::redis() else {
        return;
    };
    let system = json!({"name":"redis","endpoints":[{"name":"n0","addr":server.addr}]});
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../examples/workers/redis_lock.py"
    );
    let Some(mut b) = Bench::program(&["python3", script], system, true).await else {
        return;
    };
    b.grant(2, 300).await;
    drop(server);
    assert_eq!(b.event("lost").await["reason"], "deadline");
    let gone = json!({"id":3,"op":"acquire","client":1,"key":"L0","ttl_ms":300});
    assert_eq!(b.ask(gone).await["type"], "fail", "nothing was sent");
}

#[tokio::test]
async fn the_template_goes_through_a_cycle() {
    let system = json!({"name":"template"});
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../examples/workers/template.py"
    );
    let Some(mut b) = Bench::program(&["python3", script], system, true).await else {
        return;
    };
    let key = format!("test-{}", std::process::id());
    let acquire = json!({"id":2,"op":"acquire","client":0,"key":key,"ttl_ms":null,"wait_ms":20});
    let owner = b.ask(acquire).await["value"]["owner"].clone();
    let g = json!({"client":0,"key":key,"owner":owner,"fence":null});
    let again = json!({"id":3,"op":"acquire","client":0,"key":key,"ttl_ms":null,"wait_ms":20});
    assert_eq!(b.ask(again).await["error"], "busy");
    let write = json!({"id":4,"op":"write","value":"v1","prev":null});
    assert_eq!(b.ask(with(g.clone(), write)).await["type"], "ok");
    let read = b.ask(with(g.clone(), json!({"id":5,"op":"read"}))).await;
    assert_eq!(read["value"]["value"], "v1");
    assert_eq!(b.claims(6).await, 1);
    assert_eq!(
        b.ask(with(g, json!({"id":7,"op":"release"}))).await["value"]["held"],
        true
    );
}
