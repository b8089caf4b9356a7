//! Each bug shows itself against a real Redis, and its fixed twin does not.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::locks::{BoxedLock, CallError, Grant};
use crate::testing::{Server, lock_context, redis, want};

const TTL: u64 = 150;

fn client(server: &Server, params: Value, client: u32) -> BoxedLock {
    let cx = lock_context("redis", &[&server.addr], params, client);
    (crate::locks::find("redis").unwrap().new)(cx).unwrap()
}

/// Two clients with a bug, or two correct ones (`bug` null).
fn pair(server: &Server, bug: &Value) -> (BoxedLock, BoxedLock) {
    let params = json!({"bug": bug, "gap_ms": 30});
    (client(server, params.clone(), 0), client(server, params, 1))
}

async fn sleep(ms: u64) {
    tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
}

/// A holds past its lease, B takes the lock, A releases: does B's grant survive?
async fn late_release_spares_the_next_holder(server: &Server, bug: Value) -> bool {
    let (a, b) = pair(server, &bug);
    let old = a.acquire(&want("late", TTL, 0)).await.unwrap();
    sleep(TTL + 20).await;
    let new = b.acquire(&want("late", 5_000, 0)).await.unwrap();
    a.release(&old).await.unwrap();
    b.renew(&new, std::time::Duration::from_millis(5_000))
        .await
        .is_ok()
        && b.release(&new).await.unwrap()
}

#[tokio::test]
async fn releases_without_an_owner_check() {
    let Some(server) = redis() else { return };
    assert!(late_release_spares_the_next_holder(&server, Value::Null).await);
    for bug in ["A2", "A5"] {
        assert!(
            !late_release_spares_the_next_holder(&server, json!(bug)).await,
            "{bug}"
        );
    }
}

#[tokio::test]
async fn a_release_in_two_steps_frees_the_next_one() {
    let Some(server) = redis() else { return };
    for (bug, spared) in [(Value::Null, true), (json!("A3"), false)] {
        let params = json!({"bug": bug, "gap_ms": 150});
        let (a, b) = (
            client(&server, params.clone(), 0),
            client(&server, params, 1),
        );
        let old = a.acquire(&want("two", 60, 0)).await.unwrap();
        let (_, new) = tokio::join!(a.release(&old), async {
            sleep(80).await;
            b.acquire(&want("two", 5_000, 20)).await.unwrap()
        });
        sleep(100).await;
        let left: Result<Grant, CallError> = a.acquire(&want("two", TTL, 0)).await;
        assert_eq!(left.is_err(), spared, "{bug}");
        b.release(&new).await.unwrap();
        sleep(TTL + 20).await;
    }
}

/// How many of two acquirers at the same moment get the lock.
async fn at_once(server: &Server, bug: Value) -> usize {
    let (a, b) = pair(server, &bug);
    let wanted = want("once", TTL, 0);
    let (x, y) = tokio::join!(a.acquire(&wanted), b.acquire(&wanted));
    sleep(TTL + 20).await;
    usize::from(x.is_ok()) + usize::from(y.is_ok())
}

#[tokio::test]
async fn acquires_that_let_two_in() {
    let Some(server) = redis() else { return };
    assert_eq!(at_once(&server, Value::Null).await, 1);
    assert_eq!(at_once(&server, json!("A6")).await, 2);
    let mut both = 0;
    for _ in 0..30 {
        both = both.max(at_once(&server, json!("A4")).await);
    }
    assert_eq!(both, 2, "within 30 tries two fall into one millisecond");
}

#[tokio::test]
async fn locks_that_are_not_freed() {
    let Some(server) = redis() else { return };
    // A client that dies between the two commands.
    for (bug, freed) in [(Value::Null, true), (json!("A1"), false)] {
        let (a, b) = pair(&server, &bug);
        let key = format!("dies-{bug}");
        let cut = std::time::Duration::from_millis(15);
        let _ = tokio::time::timeout(cut, a.acquire(&want(&key, TTL, 0))).await;
        sleep(TTL + 100).await;
        assert_eq!(b.acquire(&want(&key, TTL, 0)).await.is_ok(), freed, "{bug}");
    }
    // A renewal that knows no release.
    for (bug, freed) in [(Value::Null, true), (json!("A9"), false)] {
        let (a, b) = pair(&server, &bug);
        let key = format!("back-{bug}");
        let held = a.acquire(&want(&key, TTL, 0)).await.unwrap();
        a.release(&held).await.unwrap();
        sleep(TTL).await;
        assert_eq!(b.acquire(&want(&key, TTL, 0)).await.is_ok(), freed, "{bug}");
    }
}

#[tokio::test]
async fn a_renewal_that_resurrects() {
    let Some(server) = redis() else { return };
    for (bug, revived) in [(Value::Null, false), (json!("A8"), true)] {
        let (a, b) = pair(&server, &bug);
        let old = a.acquire(&want("dead", TTL, 0)).await.unwrap();
        sleep(TTL + 20).await;
        let between = b.acquire(&want("dead", TTL, 0)).await.unwrap();
        b.release(&between).await.unwrap();
        let ttl = std::time::Duration::from_millis(TTL);
        assert_eq!(a.renew(&old, ttl).await.is_ok(), revived, "{bug}");
        sleep(TTL + 20).await;
    }
}

#[tokio::test]
async fn an_acquire_counted_twice_outlives_its_release() {
    let Some(server) = redis() else { return };
    let (a, b) = pair(&server, &json!("A13"));
    let held = a.acquire(&want("twice", 5_000, 0)).await.unwrap();
    // What the resent acquire of the same owner does on the server.
    let link =
        crate::wire::redis::RedisLink::new(server.addr.clone(), std::time::Duration::from_secs(2));
    let again = redis::cmd("HINCRBY")
        .arg("fencepost:lock:twice")
        .arg(&*held.owner)
        .arg(1)
        .to_owned();
    link.call::<i64>(&again).await.unwrap();
    assert!(a.release(&held).await.unwrap());
    assert_eq!(
        b.acquire(&want("twice", TTL, 0)).await.unwrap_err(),
        CallError::busy()
    );
    let once = a.acquire(&want("once-only", 5_000, 0)).await.unwrap();
    a.release(&once).await.unwrap();
    assert!(b.acquire(&want("once-only", TTL, 0)).await.is_ok());
}

#[tokio::test]
async fn an_error_taken_for_a_grant_and_a_live_lock_for_an_orphan() {
    let Some(server) = redis() else { return };
    let (a, b) = pair(&server, &json!("A21"));
    a.acquire(&want("live", 5_000, 0)).await.unwrap();
    assert!(b.acquire(&want("live", 5_000, 500)).await.is_ok(), "reaped");
    for (bug, granted) in [(Value::Null, false), (json!("A20"), true)] {
        let mut cx = lock_context("redis", &["127.0.0.1:1"], json!({"bug": bug}), 0);
        cx.timeout = std::time::Duration::from_millis(200);
        let c = (crate::locks::find("redis").unwrap().new)(cx).unwrap();
        assert_eq!(
            c.acquire(&want("down", TTL, 0)).await.is_ok(),
            granted,
            "{bug}"
        );
    }
}

#[tokio::test]
async fn fences_and_clocks() {
    let Some(server) = redis() else { return };
    let (a, b) = pair(&server, &json!("A55"));
    let mut fences = Vec::new();
    for _ in 0..12 {
        let held = a.acquire(&want("random", 5_000, 0)).await.unwrap();
        fences.push(held.fence.unwrap());
        a.release(&held).await.unwrap();
    }
    assert_eq!(fences.iter().collect::<HashSet<_>>().len(), 12, "unique");
    assert!(!fences.is_sorted(), "and not ordered");
    drop(b);
    // With clocks that agree, expiry by the clients' clocks looks right.
    let (a, b) = pair(&server, &json!("A22"));
    let held = a.acquire(&want("clock", TTL, 0)).await.unwrap();
    assert_eq!(
        b.acquire(&want("clock", TTL, 0)).await.unwrap_err(),
        CallError::busy()
    );
    sleep(TTL + 20).await;
    b.acquire(&want("clock", TTL, 0)).await.unwrap();
    assert!(!a.release(&held).await.unwrap());
}

#[tokio::test]
async fn an_unknown_bug_is_named() {
    let cx = lock_context("redis", &["127.0.0.1:1"], json!({"bug": "A99"}), 0);
    let Err(e) = (crate::locks::find("redis").unwrap().new)(cx) else {
        panic!()
    };
    assert!(
        e.to_string()
            .contains("no bug \"A99\" of redis; known: A1, "),
        "{e}"
    );
}
