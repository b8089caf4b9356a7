#![allow(clippy::unwrap_used)]
use super::*;
use crate::testing::{lock, lock_context, want, zookeeper};

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|n| (*n).to_owned()).collect()
}

#[test]
fn a_writer_waits_for_the_node_before_it_and_a_reader_for_a_writer() {
    let queue = names(&[
        "b-read-0000000002",
        "a-write-0000000001",
        "c-read-0000000003",
        "d-write-0000000004",
    ]);
    let before = |own: &str| predecessor(&queue, own);
    assert_eq!(before("a-write-0000000001"), Ok(None));
    assert_eq!(
        before("b-read-0000000002"),
        Ok(Some("a-write-0000000001".into()))
    );
    assert_eq!(
        before("c-read-0000000003"),
        Ok(Some("a-write-0000000001".into())),
        "not the reader"
    );
    assert_eq!(
        before("d-write-0000000004"),
        Ok(Some("c-read-0000000003".into()))
    );
    assert_eq!(before("e-write-0000000005"), Err(()));
}

#[test]
fn sequences_are_no_text_and_wrap_at_32_bits() {
    let queue = names(&["x-write-0000000009", "y-write-0000000010"]);
    assert_eq!(
        predecessor(&queue, "y-write-0000000010"),
        Ok(Some("x-write-0000000009".into()))
    );
    // The counter's last number, and the one that follows.
    let queue = names(&["z-write--2147483648", "x-write-2147483647"]);
    assert_eq!(predecessor(&queue, "x-write-2147483647"), Ok(None));
    assert_eq!(
        predecessor(&queue, "z-write--2147483648"),
        Ok(Some("x-write-2147483647".into()))
    );
}

#[tokio::test]
async fn one_holder_at_a_time_and_readers_together() {
    let Some(server) = zookeeper() else { return };
    let (a, b) = (
        lock("zookeeper", &[&server.addr], 0),
        lock("zookeeper", &[&server.addr], 1),
    );
    let first = a.acquire(&want("L0", 2_000, 0)).await.unwrap();
    assert_eq!(first.ttl, Some(Duration::from_secs(2)));
    assert_eq!(
        b.acquire(&want("L0", 2_000, 0)).await.unwrap_err(),
        CallError::busy()
    );
    a.renew(&first, Duration::ZERO).await.unwrap();
    assert!(a.release(&first).await.unwrap());
    assert!(!a.release(&first).await.unwrap());
    assert_eq!(
        a.renew(&first, Duration::ZERO).await.unwrap_err(),
        CallError::not_held()
    );
    let second = b.acquire(&want("L0", 2_000, 0)).await.unwrap();
    assert!(second.fence > first.fence);
    assert!(b.release(&second).await.unwrap());
    let shared = Want {
        mode: Mode::Shared,
        ..want("L1", 2_000, 0)
    };
    let one = a.acquire(&shared).await.unwrap();
    b.acquire(&shared).await.unwrap();
    let write = a.acquire(&want("L1", 2_000, 0)).await;
    assert_eq!(write.unwrap_err(), CallError::busy());
    assert!(a.release(&one).await.unwrap());
}

#[tokio::test]
async fn a_waiter_is_queued_and_follows_a_closed_session() {
    let Some(server) = zookeeper() else { return };
    let a = lock("zookeeper", &[&server.addr], 0);
    let signals = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut cx = lock_context("zookeeper", &[&server.addr], serde_json::json!({}), 1);
    let seen = signals.clone();
    cx.signals = Signals::new(move |s| seen.lock().unwrap().push(format!("{s:?}")));
    let b = new(cx).unwrap();
    a.acquire(&want("L0", 2_000, 0)).await.unwrap();
    let wanted = want("L0", 2_000, 10_000);
    let (next, ()) = tokio::join!(b.acquire(&wanted), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        a.close().await;
    });
    next.unwrap();
    assert_eq!(*signals.lock().unwrap(), ["Queued(1)", "Woken(1)"]);
}
