#![allow(clippy::unwrap_used)]
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
};

use super::*;
use crate::protocol::FromWorker;
use crate::stores::witness::{Rules, Witness};

/// A worker in this process, as a controller sees it.
struct Bench {
    to: WriteHalf<DuplexStream>,
    from: Lines<BufReader<ReadHalf<DuplexStream>>>,
    seen: Vec<Value>,
    log: tempfile::NamedTempFile,
    worker: tokio::task::JoinHandle<ExitCode>,
}

impl Bench {
    async fn new(system: Value, fenced: bool) -> Bench {
        let log = tempfile::NamedTempFile::new().unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let rules = Rules {
            fenced,
            raise_on_read: true,
        };
        let witness = Witness::new(rules, log.reopen().unwrap());
        tokio::spawn(crate::stores::witness::serve(listener, witness));
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (input, output) = tokio::io::split(theirs);
        let worker = tokio::spawn(serve(
            WorkerArgs { system: None },
            Input::over(input),
            Out::to(output),
        ));
        let (from, to) = tokio::io::split(ours);
        let from = BufReader::new(from).lines();
        let mut bench = Bench {
            to,
            from,
            seen: Vec::new(),
            log,
            worker,
        };
        let hello = bench
            .ask(json!({"id":1,"op":"init","protocol":1,"worker":0,"clients":4,"seed":7,"system":system,
                "store":{"kind":"witness","addr":addr},"ttl_ms":300,"timeout_ms":500}))
            .await;
        assert_eq!(hello["type"], "ok", "{hello}");
        assert_eq!(hello["value"]["points"], json!(["before-store-write"]));
        bench
    }

    async fn send(&mut self, line: Value) {
        self.to
            .write_all(format!("{line}\n").as_bytes())
            .await
            .unwrap();
    }

    /// Reads on to the first line that `which` picks; the others are kept in `seen`.
    async fn until(&mut self, which: impl Fn(&Value) -> bool) -> Value {
        let read = async {
            loop {
                let line = self.from.next_line().await.unwrap().unwrap();
                FromWorker::parse(line.as_bytes()).unwrap();
                let line: Value = serde_json::from_str(&line).unwrap();
                if which(&line) {
                    return line;
                }
                self.seen.push(line);
            }
        };
        tokio::time::timeout(Duration::from_secs(5), read)
            .await
            .unwrap()
    }

    async fn event(&mut self, name: &str) -> Value {
        if let Some(at) = self.seen.iter().position(|l| l["event"] == name) {
            return self.seen.remove(at);
        }
        self.until(|l| l["event"] == name).await
    }

    async fn answer(&mut self, id: u64) -> Value {
        self.until(|l| l["id"] == id && l["type"].is_string()).await
    }

    async fn ask(&mut self, line: Value) -> Value {
        let id = line["id"].as_u64().unwrap();
        self.send(line).await;
        self.answer(id).await
    }

    /// Acquires as client 0 and answers the fields that name the grant.
    async fn grant(&mut self, id: u64, ttl_ms: u64) -> Value {
        let got = self
            .ask(json!({"id":id,"op":"acquire","client":0,"key":"L0","ttl_ms":ttl_ms,"wait_ms":0}))
            .await;
        let v = &got["value"];
        json!({"client":0,"key":"L0","owner":v["owner"],"fence":v["fence"]})
    }

    async fn claims(&mut self, id: u64) -> usize {
        let got = self.ask(json!({"id":id,"op":"ping"})).await;
        got["value"]["claims"].as_array().unwrap().len()
    }

    fn stored(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.log.path()).unwrap();
        text.lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect()
    }
}

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
    let end = tokio::time::timeout(Duration::from_secs(5), b.worker).await;
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
