//! As `check_tests`, of the clients of one Redis server whose twin is the plain client.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::check_tests::{SERVICE, TTL, client, pair, seen, sleep};
use crate::locks::{BoxedLock, CallError, Grant, LockClient, Want};
use crate::testing::proxy::Proxy;
use crate::testing::record::Record;
use crate::testing::{Server, redis, want};

/// The bug, then the plain client, and whether a violation must be seen.
fn both(bug: &str) -> [(Value, bool); 2] {
    within(bug, 60)
}

/// The same, with this long a gap at the bug's critical place, in milliseconds.
fn within(bug: &str, gap: u64) -> [(Value, bool); 2] {
    [
        (json!({"bug": bug, "gap_ms": gap}), true),
        (json!({}), false),
    ]
}

fn lock_of(params: &Value, ttl: u64, wait: u64) -> Want {
    want(&format!("{}", params["bug"]), ttl, wait)
}

/// A client that dies this long after it was asked: what it did stays unknown.
struct Dies(BoxedLock, Duration);

#[async_trait]
impl LockClient for Dies {
    async fn acquire(&self, want: &Want) -> Result<Grant, CallError> {
        let asked = tokio::time::timeout(self.1, self.0.acquire(want)).await;
        let unknown = || Err(CallError::unknown("its worker died"));
        asked.unwrap_or_else(|_| unknown()).or_else(|_| unknown())
    }

    async fn renew(&self, grant: &Grant, ttl: Duration) -> Result<Duration, CallError> {
        self.0.renew(grant, ttl).await
    }

    async fn release(&self, grant: &Grant) -> Result<bool, CallError> {
        self.0.release(grant).await
    }
}

#[tokio::test]
async fn a1_a_client_that_dies_leaves_its_lock_for_ever() {
    let Some(server) = redis() else { return };
    for (params, wanted) in within("A1", 400) {
        let (a, b) = pair("redis", &server, &params);
        let (record, lock) = (Record::leased(TTL), lock_of(&params, TTL, 0));
        let dies = Dies(a, Duration::from_millis(200));
        let _ = record.acquire(0, &dies, &lock).await;
        record.exit(0);
        sleep(2 * TTL + 50).await;
        let later = record.acquire(1, &*b, &lock).await;
        assert_eq!(later.is_err(), wanted, "{params}");
        seen(record, "freed-in-time", wanted, &params);
    }
}

#[tokio::test]
async fn a2_and_a5_a_release_frees_the_next_ones_lock() {
    let Some(server) = redis() else { return };
    for bug in ["A2", "A5"] {
        for (params, wanted) in both(bug) {
            let (a, b) = pair("redis", &server, &params);
            let (record, lock) = (Record::leased(TTL), lock_of(&params, TTL, 0));
            let old = record.acquire(0, &*a, &lock).await.unwrap();
            sleep(TTL + 20).await;
            let new = record.acquire(1, &*b, &lock).await.unwrap();
            let freed = record.release(0, &*a, &old).await.unwrap();
            assert_eq!(freed, wanted, "{params}");
            record.release(1, &*b, &new).await.unwrap();
            seen(record, "owner-only", wanted, &params);
        }
    }
}

#[tokio::test]
async fn a3_a_release_in_two_steps_lets_a_third_one_in() {
    let Some(server) = redis() else { return };
    for (params, wanted) in within("A3", 300) {
        let (a, b) = pair("redis", &server, &params);
        let c = client("redis", &server.addr, &params, 2);
        let (record, short) = (Record::leased(5_000), lock_of(&params, 150, 0));
        let held = record.acquire(0, &*a, &short).await.unwrap();
        sleep(50).await;
        // The lease ends between the two steps, and the second one takes what is the next one's by then.
        let next = lock_of(&params, 5_000, 200);
        let (_, taken) = tokio::join!(record.release(0, &*a, &held), record.acquire(1, &*b, &next));
        taken.unwrap();
        sleep(50).await;
        let third = record.acquire(2, &*c, &lock_of(&params, 5_000, 0)).await;
        assert_eq!(third.is_ok(), wanted, "{params}");
        seen(record, SERVICE, wanted, &params);
    }
}

async fn at_once(server: &Server, record: &Record, params: &Value) -> usize {
    let (a, b) = pair("redis", server, params);
    let lock = lock_of(params, TTL, 0);
    let (x, y) = tokio::join!(record.acquire(0, &*a, &lock), record.acquire(1, &*b, &lock));
    sleep(TTL + 20).await;
    usize::from(x.is_ok()) + usize::from(y.is_ok())
}

#[tokio::test]
async fn a4_and_a6_two_that_ask_at_once_both_get_it() {
    let Some(server) = redis() else { return };
    for (bug, tries) in [("A4", 30), ("A6", 1)] {
        for (params, wanted) in both(bug) {
            let record = Record::leased(TTL);
            // Two fall into one millisecond within a few tries.
            for _ in 0..tries {
                if at_once(&server, &record, &params).await == 2 || !wanted {
                    break;
                }
            }
            seen(record, SERVICE, wanted, &params);
        }
    }
}

#[tokio::test]
async fn a8_a_renewal_resurrects_what_another_has_had() {
    let Some(server) = redis() else { return };
    for (params, wanted) in both("A8") {
        let (a, b) = pair("redis", &server, &params);
        let (record, lock) = (Record::leased(TTL), lock_of(&params, TTL, 0));
        let old = record.acquire(0, &*a, &lock).await.unwrap();
        sleep(TTL + 20).await;
        let between = record.acquire(1, &*b, &lock).await.unwrap();
        record.release(1, &*b, &between).await.unwrap();
        let ttl = Duration::from_millis(TTL);
        let revived = record.renew(0, &*a, &old, ttl).await.is_ok();
        assert_eq!(revived, wanted, "{params}");
        seen(record, "owner-only", wanted, &params);
    }
}

#[tokio::test]
async fn a9_a_released_lock_comes_back() {
    let Some(server) = redis() else { return };
    for (params, wanted) in both("A9") {
        let (a, b) = pair("redis", &server, &params);
        let (record, lock) = (Record::leased(TTL), lock_of(&params, TTL, 0));
        let held = record.acquire(0, &*a, &lock).await.unwrap();
        record.release(0, &*a, &held).await.unwrap();
        sleep(2 * TTL + 50).await;
        let later = record.acquire(1, &*b, &lock).await;
        assert_eq!(later.is_err(), wanted, "{params}");
        seen(record, "freed-in-time", wanted, &params);
    }
}

#[tokio::test]
async fn a13_an_acquire_counted_twice_is_never_freed() {
    let Some(server) = redis() else { return };
    for (params, wanted) in both("A13") {
        let proxy = Proxy::to(&server.addr).await;
        let a = client("redis", &proxy.addr, &params, 0);
        let b = client("redis", &server.addr, &params, 1);
        let (record, lock) = (Record::leased(TTL), lock_of(&params, TTL, 0));
        proxy.lose_next_answer();
        // The bug sends it again; the plain client does not know what became of it, and sends nothing.
        let asked = record.acquire(0, &*a, &lock).await;
        assert_eq!(asked.is_ok(), wanted, "{params} {asked:?}");
        if let Ok(held) = &asked {
            assert!(record.release(0, &*a, held).await.unwrap());
        }
        sleep(2 * TTL + 50).await;
        let later = record.acquire(1, &*b, &lock).await;
        assert_eq!(later.is_err(), wanted, "{params}");
        seen(record, "freed-in-time", wanted, &params);
    }
}

/// The second one's clock is a minute ahead; the plain client asks for none.
#[tokio::test]
async fn a22_a_live_lock_has_run_out_by_another_clock() {
    let Some(server) = redis() else { return };
    for (params, wanted) in both("A22") {
        let a = client("redis", &server.addr, &params, 0);
        let mut ahead = params.clone();
        ahead["skew_ms"] = 60_000.into();
        let b = client("redis", &server.addr, &ahead, 1);
        let (record, lock) = (Record::leased(5_000), lock_of(&params, 5_000, 0));
        let held = record.acquire(0, &*a, &lock).await.unwrap();
        let taken = record.acquire(1, &*b, &lock).await;
        assert_eq!(taken.is_ok(), wanted, "{params}");
        let _ = record.release(0, &*a, &held).await;
        seen(record, SERVICE, wanted, &params);
    }
}

#[tokio::test]
async fn a20_an_error_taken_for_a_grant_is_a_second_holder() {
    let Some(server) = redis() else { return };
    for (params, wanted) in both("A20") {
        let (record, lock) = (Record::leased(5_000), lock_of(&params, 5_000, 0));
        let b = client("redis", &server.addr, &params, 1);
        record.acquire(1, &*b, &lock).await.unwrap();
        let a = client("redis", "127.0.0.1:1", &params, 0);
        let taken = record.acquire(0, &*a, &lock).await;
        assert_eq!(taken.is_ok(), wanted, "{params}");
        seen(record, SERVICE, wanted, &params);
    }
}

#[tokio::test]
async fn a21_a_live_lock_is_reaped() {
    let Some(server) = redis() else { return };
    for (params, wanted) in both("A21") {
        let (a, b) = pair("redis", &server, &params);
        let record = Record::leased(5_000);
        let held = record.acquire(0, &*a, &lock_of(&params, 5_000, 0)).await;
        let taken = record.acquire(1, &*b, &lock_of(&params, 5_000, 300)).await;
        assert_eq!((held.is_ok(), taken.is_ok()), (true, wanted), "{params}");
        seen(record, SERVICE, wanted, &params);
    }
}

#[tokio::test]
async fn a55_a_random_fence_goes_back() {
    let Some(server) = redis() else { return };
    for (params, wanted) in both("A55") {
        let (a, _) = pair("redis", &server, &params);
        let (record, lock) = (Record::leased(5_000), lock_of(&params, 5_000, 0));
        for _ in 0..12 {
            let held = record.acquire(0, &*a, &lock).await.unwrap();
            record.release(0, &*a, &held).await.unwrap();
        }
        seen(record, "fence-monotonic", wanted, &params);
    }
}
