#![allow(clippy::unwrap_used)]
use super::*;
use crate::testing::{etcd, lock, lock_context, want};

#[tokio::test]
async fn one_holder_at_a_time_with_revisions_as_fences() {
    let Some(server) = etcd() else { return };
    let (a, b) = (
        lock("etcd", &[&server.addr], 0),
        lock("etcd", &[&server.addr], 1),
    );
    let first = a.acquire(&want("L0", 2_000, 0)).await.unwrap();
    assert_eq!(first.ttl, Some(Duration::from_secs(2)));
    assert_eq!(
        b.acquire(&want("L0", 2_000, 0)).await.unwrap_err(),
        CallError::busy()
    );
    assert_eq!(
        a.renew(&first, Duration::ZERO).await.unwrap(),
        Duration::from_secs(2)
    );
    assert!(a.release(&first).await.unwrap());
    assert!(!a.release(&first).await.unwrap());
    let second = b.acquire(&want("L0", 2_000, 0)).await.unwrap();
    assert!(second.fence > first.fence);
    assert!(
        !a.release(&first).await.unwrap(),
        "an old owner frees nothing"
    );
    let again = b.release(&second).await.unwrap();
    assert!(again);
    let third = a.acquire(&want("L0", 2_000, 0)).await.unwrap();
    assert_ne!(third.owner, first.owner, "the same lease, another owner");
}

#[tokio::test]
async fn a_waiter_is_queued_and_follows_a_holder_whose_lease_ended() {
    let Some(server) = etcd() else { return };
    let a = lock("etcd", &[&server.addr], 0);
    let signals = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut cx = lock_context("etcd", &[&server.addr], serde_json::json!({}), 1);
    let seen = signals.clone();
    cx.signals = Signals::new(move |s| seen.lock().unwrap().push(format!("{s:?}")));
    let b = new(cx).unwrap();
    let held = a.acquire(&want("L0", 2_000, 0)).await.unwrap();
    let began = Instant::now();
    let next = b.acquire(&want("L0", 2_000, 10_000)).await.unwrap();
    assert!(
        began.elapsed() > Duration::from_millis(1_500),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(*signals.lock().unwrap(), ["Queued(1)", "Woken(1)"]);
    assert_eq!(
        a.renew(&held, Duration::ZERO).await.unwrap_err(),
        CallError::not_held()
    );
    assert!(next.fence > held.fence);
    assert!(
        b.release(&next).await.unwrap(),
        "its own lease was kept alive while it waited"
    );
}
