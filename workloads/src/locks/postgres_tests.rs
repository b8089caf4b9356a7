#![allow(clippy::unwrap_used)]
use super::*;
use crate::testing::{lock_context, postgres, want};

fn client(addr: &str, variant: &str, client: u32) -> BoxedLock {
    let json = serde_json::json!({"variant": variant});
    new(lock_context("postgres", &[addr], json, client)).unwrap()
}

#[tokio::test]
async fn every_variant_excludes_and_draws_rising_fences() {
    let Some(server) = postgres() else { return };
    for variant in ["session", "transaction", "row"] {
        let [l0, l1, l2] = ["L0", "L1", "L2"].map(|l| format!("{variant}-{l}"));
        let (a, b) = (
            client(&server.addr, variant, 0),
            client(&server.addr, variant, 1),
        );
        let first = a.acquire(&want(&l0, 0, 0)).await.unwrap();
        assert_eq!(first.ttl, None);
        assert_eq!(
            b.acquire(&want(&l0, 0, 50)).await.unwrap_err(),
            CallError::busy(),
            "{variant}"
        );
        b.acquire(&want(&l1, 0, 0)).await.unwrap();
        assert!(a.release(&first).await.unwrap());
        assert!(!a.release(&first).await.unwrap());
        let second = b.acquire(&want(&l0, 0, 50)).await.unwrap();
        assert!(second.fence > first.fence);
        assert!(b.release(&second).await.unwrap());
        let shared = Want {
            mode: Mode::Shared,
            ..want(&l2, 0, 0)
        };
        a.acquire(&shared).await.unwrap();
        b.acquire(&shared).await.unwrap();
        a.close().await;
        let third = b.acquire(&want(&l0, 0, 500)).await.unwrap();
        assert!(third.fence > second.fence);
        b.close().await;
    }
}

#[tokio::test]
async fn a_hold_ends_with_its_connection_and_that_is_reported() {
    let Some(server) = postgres() else { return };
    let lost = Arc::new(Mutex::new(Vec::new()));
    let mut cx = lock_context("postgres", &[&server.addr], serde_json::json!({}), 0);
    let seen = lost.clone();
    cx.signals = Signals::new(move |s| lock(&seen).push(format!("{s:?}")));
    let a = new(cx).unwrap();
    let held = a.acquire(&want("L0", 0, 0)).await.unwrap();
    let addr = PgAddr::new(
        &server.addr,
        &crate::protocol::Params::new(),
        Duration::from_secs(5),
    )
    .unwrap();
    let other = addr.connect("").await.unwrap();
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'";
    other.many(kill, &[]).await.unwrap();
    let b = client(&server.addr, "session", 1);
    b.acquire(&want("L0", 0, 2_000)).await.unwrap();
    let began = Instant::now();
    while lock(&lost).is_empty() && began.elapsed() < Duration::from_secs(2) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(lock(&lost)[0].contains("connection lost"));
    assert!(!a.release(&held).await.unwrap());
}
