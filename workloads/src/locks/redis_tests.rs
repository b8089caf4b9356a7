#![allow(clippy::unwrap_used)]
use super::*;
use crate::testing::{lock, redis, want};

#[tokio::test]
async fn one_holder_at_a_time_with_rising_fences() {
    let Some(server) = redis() else { return };
    let (a, b) = (
        lock("redis", &[&server.addr], 0),
        lock("redis", &[&server.addr], 1),
    );
    let first = a.acquire(&want("L0", 60_000, 0)).await.unwrap();
    assert_eq!(first.owner.len(), 40);
    assert_eq!(
        b.acquire(&want("L0", 60_000, 0)).await.unwrap_err(),
        CallError::busy()
    );
    assert!(
        b.acquire(&want("L1", 60_000, 0)).await.is_ok(),
        "another name is free"
    );
    assert!(a.release(&first).await.unwrap());
    assert!(
        !a.release(&first).await.unwrap(),
        "a second release frees nothing"
    );
    let second = b.acquire(&want("L0", 60_000, 0)).await.unwrap();
    assert!(second.fence > first.fence);
    assert!(!a.release(&first).await.unwrap(), "nor does an old owner's");
    let gone = a.renew(&first, first.ttl.unwrap()).await;
    assert_eq!(gone.unwrap_err(), CallError::not_held());
    assert!(b.release(&second).await.unwrap());
}

#[tokio::test]
async fn a_waiter_gets_the_lock_when_the_lease_ends_and_renewal_prolongs_it() {
    let Some(server) = redis() else { return };
    let (a, b) = (
        lock("redis", &[&server.addr], 0),
        lock("redis", &[&server.addr], 1),
    );
    let began = Instant::now();
    let held = a.acquire(&want("L0", 300, 0)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(150)).await;
    a.renew(&held, Duration::from_millis(300)).await.unwrap();
    b.acquire(&want("L0", 300, 5_000)).await.unwrap();
    assert!(
        began.elapsed() >= Duration::from_millis(445),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn nobody_there_is_definite_and_a_silent_server_is_unknown() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = silent.local_addr().unwrap().to_string();
    let mut cx = crate::testing::lock_context("redis", &[&addr], serde_json::json!({}), 0);
    cx.timeout = Duration::from_millis(50);
    let quiet = RedisLock::new(&cx).unwrap();
    let got = quiet.acquire(&want("L0", 100, 0)).await.unwrap_err();
    assert_eq!(got, CallError::unknown("timeout"));
    drop(silent);
    let mut got = quiet.acquire(&want("L0", 100, 0)).await.unwrap_err();
    // It may have been sent over the old connection before the reset was read.
    if got.to_string().contains("reset by peer") {
        got = quiet.acquire(&want("L0", 100, 0)).await.unwrap_err();
    }
    assert!(matches!(got, CallError::Definite(_)), "{got}");
}
