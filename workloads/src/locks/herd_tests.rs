//! What wakes the waiters of each lock that has a queue, counted where it arrives: one of them a hand-over.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use fencepost_checker::verdict::{CheckResult, Verdict};
use serde_json::{Value, json};

use crate::testing::record::Record;
use crate::testing::{etcd, lock_context, want, zookeeper};

const WAITERS: u32 = 12;

/// A holder and its waiters take their turns; what the check `herd` says.
async fn turns(system: &'static str, addr: &str, params: Value) -> CheckResult {
    let facts = json!({"system": {"lease": true, "fence": true, "fifo": true}, "lease": {"ttl_ms": 20_000}});
    let record = Arc::new(Record::new(&facts));
    let client = |worker: u32| {
        let mut cx = lock_context(system, &[addr], params.clone(), 0);
        (cx.worker, cx.signals) = (worker, record.signals(worker));
        (crate::locks::find(system).unwrap().new)(cx).unwrap()
    };
    let first = client(0);
    let key = format!("herd-{params}");
    let held = record.acquire(0, &*first, &want(&key, 20_000, 0)).await;
    let tasks: Vec<_> = (1..=WAITERS)
        .map(|worker| {
            let (lock, record) = (client(worker), record.clone());
            let wanted = want(&key, 20_000, 30_000);
            tokio::spawn(async move {
                let held = record.acquire(worker, &*lock, &wanted).await.unwrap();
                record.release(worker, &*lock, &held).await.unwrap();
            })
        })
        .collect();
    // All of them stand in the queue by then, or the counts below are too low.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    record.release(0, &*first, &held.unwrap()).await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    drop(first);
    let record = Arc::into_inner(record).unwrap();
    record.results().remove("herd").unwrap()
}

#[tokio::test]
async fn zookeeper_wakes_one_waiter_and_a_watch_on_the_whole_queue_wakes_all() {
    let Some(server) = zookeeper() else { return };
    let right = turns("zookeeper", &server.addr, json!({})).await;
    assert_eq!(right.verdict, Verdict::Holds, "{}", right.reason);
    assert!(right.reason.contains("(1.00 each)"), "{}", right.reason);
    let herd = turns("zookeeper", &server.addr, json!({"bug": "herd"})).await;
    assert_eq!(herd.verdict, Verdict::Violated, "{}", herd.reason);
}

/// etcd's lock service waits on the server: its own watch events are counted there.
#[tokio::test]
async fn etcd_wakes_one_waiter_inside_the_server_too() {
    let Some(server) = etcd() else { return };
    let before = events_sent(&server.addr).await;
    let right = turns("etcd", &server.addr, json!({})).await;
    assert_eq!(right.verdict, Verdict::Holds, "{}", right.reason);
    let sent = events_sent(&server.addr).await - before;
    // A herd of twelve is 78.
    assert!(
        (1..=u64::from(WAITERS) + 1).contains(&sent),
        "{sent} watch events for {WAITERS} hand-overs"
    );
}

/// Watch events that an etcd server has sent since it began.
async fn events_sent(addr: &str) -> u64 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut socket = tokio::net::TcpStream::connect(addr).await.unwrap();
    let ask = format!("GET /metrics HTTP/1.0\r\nHost: {addr}\r\n\r\n");
    socket.write_all(ask.as_bytes()).await.unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).await.unwrap();
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix("etcd_debugging_mvcc_events_total "));
    line.unwrap().trim().parse::<f64>().unwrap() as u64
}
