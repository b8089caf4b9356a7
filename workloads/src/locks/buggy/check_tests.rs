//! What clients with a bug do is recorded as a run records it: the right check sees it, and sees
//! nothing of the twin.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use serde_json::{Value, json};

use crate::locks::{BoxedLock, CallError, Want};
use crate::protocol::Mode;
use crate::testing::proxy::Proxy;
use crate::testing::record::Record;
use crate::testing::{Server, etcd, lock_context, postgres, redis, want, zookeeper};

pub(super) const TTL: u64 = 200;

pub(super) fn client(system: &str, addr: &str, params: &Value, worker: u32) -> BoxedLock {
    let mut cx = lock_context(system, &[addr], params.clone(), 0);
    cx.worker = worker;
    (crate::locks::find(system).unwrap().new)(cx).unwrap()
}

/// Two clients of two workers.
pub(super) fn pair(system: &str, server: &Server, params: &Value) -> (BoxedLock, BoxedLock) {
    let one = |worker| client(system, &server.addr, params, worker);
    (one(0), one(1))
}

pub(super) async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// The bug, then its twin, and whether it must be seen.
fn both(bug: &str) -> [(Value, bool); 2] {
    [false, true].map(|twin| (json!({"bug": bug, "twin": twin, "gap_ms": 60}), !twin))
}

pub(super) fn seen(record: Record, check: &str, wanted: bool, params: &Value) {
    let violated = record.violated();
    if wanted {
        assert!(violated.iter().any(|v| v == check), "{params} {violated:?}");
    } else {
        assert!(violated.is_empty(), "{params} {violated:?}");
    }
}

pub(super) const SERVICE: &str = "double-holder.service";

#[tokio::test]
async fn a15_a_wake_up_is_lost() {
    let Some(server) = redis() else { return };
    for (params, wanted) in both("A15") {
        let (a, b) = pair("redis", &server, &params);
        let (record, key) = (Record::leased(TTL), format!("a15-{wanted}"));
        let held = record.acquire(0, &*a, &want(&key, TTL, 0)).await.unwrap();
        // Released between the waiter's first try and its subscription.
        let wanted_lock = want(&key, TTL, 4 * TTL);
        let (next, ()) = tokio::join!(record.acquire(1, &*b, &wanted_lock), async {
            sleep(20).await;
            assert!(record.release(0, &*a, &held).await.unwrap());
        });
        record.release(1, &*b, &next.unwrap()).await.unwrap();
        seen(record, "freed-in-time", wanted, &params);
    }
}

#[tokio::test]
async fn a30_a_second_unlock_removes_a_newer_key() {
    let Some(server) = etcd() else { return };
    for (params, wanted) in [(json!({"bug": "A30"}), true), (json!({}), false)] {
        let (a, b) = pair("etcd", &server, &params);
        let (record, lock) = (
            Record::leased(2_000),
            want(&format!("a30-{wanted}"), 2_000, 0),
        );
        let first = record.acquire(0, &*a, &lock).await.unwrap();
        assert!(record.release(0, &*a, &first).await.unwrap());
        let second = record.acquire(0, &*a, &lock).await.unwrap();
        assert_eq!(record.release(0, &*a, &first).await.unwrap(), wanted);
        let other = record.acquire(1, &*b, &lock).await;
        assert_eq!(other.is_ok(), wanted);
        let _ = record.release(0, &*a, &second).await;
        let violated = record.violated();
        for check in [SERVICE, "owner-only"] {
            assert_eq!(violated.iter().any(|v| v == check), wanted, "{violated:?}");
        }
    }
}

/// The client sends the second unlock by itself where the answer to the first was lost.
#[tokio::test]
async fn a30_retries_where_the_answer_was_lost() {
    let Some(server) = etcd() else { return };
    for (params, wanted) in [(json!({"bug": "A30"}), true), (json!({}), false)] {
        let proxy = Proxy::to(&server.addr).await;
        let a = client("etcd", &proxy.addr, &params, 0);
        let b = client("etcd", &server.addr, &params, 1);
        let (record, lock) = (
            Record::leased(3_000),
            want(&format!("lost-{wanted}"), 3_000, 0),
        );
        let again = want(&lock.key, 3_000, 6_000);
        let first = record.acquire(0, &*a, &lock).await.unwrap();
        // What the connection itself still has to say is not the answer that is meant.
        sleep(100).await;
        proxy.lose_next_answer();
        let unknown = record.release(0, &*a, &first).await;
        assert!(matches!(unknown, Err(CallError::Unknown(_))), "{unknown:?}");
        let second = record.acquire(0, &*a, &again).await.unwrap();
        sleep(2_200).await;
        assert!(record.renew(0, &*a, &second, Duration::ZERO).await.is_ok());
        let other = record.acquire(1, &*b, &lock).await;
        assert_eq!(other.is_ok(), wanted, "{params} {other:?}");
        seen(record, SERVICE, wanted, &params);
    }
}

#[tokio::test]
async fn a31_a_keepalive_of_a_lease_without_its_lock() {
    let Some(server) = redis() else { return };
    for (params, wanted) in both("A31") {
        let (a, b) = pair("redis", &server, &params);
        let (record, lock) = (Record::leased(TTL), want(&format!("a31-{wanted}"), TTL, 0));
        let held = record.acquire(0, &*a, &lock).await.unwrap();
        let (_, renewed) = tokio::join!(record.release(0, &*a, &held), async {
            sleep(20).await;
            record.acquire(1, &*b, &lock).await.unwrap();
            record
                .renew(0, &*a, &held, Duration::from_millis(TTL))
                .await
        });
        assert_eq!(renewed.is_ok(), wanted, "{params}");
        seen(record, "owner-only", wanted, &params);
    }
}

#[tokio::test]
async fn a37_an_orphan_at_the_head_of_the_queue() {
    let Some(server) = zookeeper() else { return };
    let ttl = 800;
    for (params, wanted) in [(json!({"bug": "A37"}), true), (json!({}), false)] {
        let proxy = Proxy::to(&server.addr).await;
        let a = client("zookeeper", &proxy.addr, &params, 0);
        let b = client("zookeeper", &server.addr, &params, 1);
        let (record, lock) = (Record::leased(ttl), want(&format!("a37-{wanted}"), ttl, 0));
        let first = record.acquire(0, &*a, &lock).await.unwrap();
        assert!(record.release(0, &*a, &first).await.unwrap());
        // The node is made, the answer is lost, the session lives on.
        proxy.lose_next_answer();
        let again = record.acquire(0, &*a, &lock).await;
        if let Ok(held) = &again {
            assert!(record.release(0, &*a, held).await.unwrap());
        }
        sleep(2 * ttl + 200).await;
        let other = record.acquire(1, &*b, &lock).await;
        assert_eq!(other.is_err(), wanted, "{params} {again:?} {other:?}");
        seen(record, "freed-in-time", wanted, &params);
    }
}

#[tokio::test]
async fn a38_the_node_of_a_dead_session_is_trusted() {
    let Some(server) = zookeeper() else { return };
    let ttl = 1_600;
    for (params, wanted) in [(json!({"bug": "A38"}), true), (json!({}), false)] {
        let proxy = Proxy::to(&server.addr).await;
        let cut_off = client("zookeeper", &proxy.addr, &params, 0);
        let (a, b) = pair("zookeeper", &server, &params);
        let (record, key) = (Record::leased(ttl), format!("a38-{wanted}"));
        let lock = want(&key, ttl, 6_000);
        record.acquire(0, &*cut_off, &lock).await.unwrap();
        proxy.cut();
        sleep(ttl / 2).await;
        // The same client with a new session, and a rival.
        let (mine, theirs) = tokio::join!(
            async {
                let held = record.acquire(0, &*a, &lock).await.unwrap();
                sleep(300).await;
                let _ = record.renew(0, &*a, &held, Duration::ZERO).await;
                if !wanted {
                    record.release(0, &*a, &held).await.unwrap();
                }
            },
            async {
                sleep(100).await;
                record.acquire(1, &*b, &lock).await
            }
        );
        let ((), _) = (mine, theirs.unwrap());
        seen(record, SERVICE, wanted, &params);
    }
}

#[tokio::test]
async fn a41_a_semaphore_over_its_capacity() {
    let Some(server) = redis() else { return };
    for (params, wanted) in both("A41") {
        let facts = json!({"system": {"lease": true, "fence": true, "granularity_ms": 1},
            "lease": {"ttl_ms": 5_000}, "mode": "semaphore", "permits": 2});
        let record = Record::new(&facts);
        let lock = Want {
            mode: Mode::Semaphore,
            permits: Some(2),
            ..want(&format!("a41-{wanted}"), 5_000, 0)
        };
        let clients: Vec<BoxedLock> = (0..3)
            .map(|w| client("redis", &server.addr, &params, w))
            .collect();
        let (x, y, z) = tokio::join!(
            record.acquire(0, &*clients[0], &lock),
            record.acquire(1, &*clients[1], &lock),
            record.acquire(2, &*clients[2], &lock)
        );
        let granted = [x, y, z].iter().filter(|g| g.is_ok()).count();
        assert_eq!(granted, if wanted { 3 } else { 2 }, "{params}");
        seen(record, SERVICE, wanted, &params);
    }
}

#[tokio::test]
async fn a43_a_ticket_that_went_negative_is_first() {
    let Some(server) = redis() else { return };
    for (params, wanted) in both("A43") {
        let (a, b) = pair("redis", &server, &params);
        let (record, key) = (Record::leased(5_000), format!("a43-{wanted}"));
        let wait = Duration::from_secs(2);
        let link = crate::wire::redis::RedisLink::new(server.addr.clone(), wait);
        let mut last = ::redis::cmd("SET");
        last.arg(super::a43::tickets(&key)).arg(i32::MAX - 1);
        link.call::<()>(&last).await.unwrap();
        let lock = want(&key, 5_000, 0);
        let held = record.acquire(0, &*a, &lock).await.unwrap();
        let other = record.acquire(1, &*b, &lock).await;
        assert_eq!(other.is_ok(), wanted, "{params} {held:?} {other:?}");
        seen(record, SERVICE, wanted, &params);
    }
}

#[tokio::test]
async fn a45_a_backup_without_an_expiry_takes_over() {
    let Some(server) = redis() else { return };
    for (params, wanted) in both("A45") {
        let (a, b) = pair("redis", &server, &params);
        let (record, lock) = (Record::leased(TTL), want(&format!("a45-{wanted}"), TTL, 0));
        record.acquire(0, &*a, &lock).await.unwrap();
        record.exit(0);
        sleep(TTL + 50).await;
        // Whoever asks first finds the lock's own entry gone.
        let first = record.acquire(1, &*b, &lock).await;
        assert_eq!(first.is_err(), wanted, "{params} {first:?}");
        if wanted {
            sleep(2 * TTL).await;
            record.acquire(1, &*b, &lock).await.unwrap_err();
        }
        seen(record, "freed-in-time", wanted, &params);
    }
}

#[tokio::test]
async fn a47_a_pooled_backend_enters_the_lock_again() {
    let Some(server) = postgres() else { return };
    for (params, wanted) in [(json!({"bug": "A47"}), true), (json!({}), false)] {
        let (a, b) = pair("postgres", &server, &params);
        let record = Record::new(&json!({"system": {"fence": true, "ends_with_connection": true}}));
        let lock = want(&format!("a47-{wanted}"), 0, 50);
        record.acquire(0, &*a, &lock).await.unwrap();
        let other = record.acquire(1, &*b, &lock).await;
        assert_eq!(other.is_ok(), wanted, "{other:?}");
        seen(record, SERVICE, wanted, &params);
    }
}
