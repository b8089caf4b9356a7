//! The client against a node that fails at chosen moments: nothing is held that nobody knows of, and nothing is believed
//! to be held that is lost.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::{Answer, Fake, granted, refused};
use raftlock_client::Mode;
use serde_json::json;
use tokio::time::{sleep, timeout};

const LONG: Duration = Duration::from_secs(10);

/// The answer to the first acquire is lost; then there is no leader for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_may_have_been_granted_is_given_back_though_the_last_refusal_was_definite() {
    let asks = AtomicU32::new(0);
    let node = Fake::start(15_000, move |ask| {
        let acquire = ask.what.ends_with(":acquire");
        acquire.then(|| match asks.fetch_add(1, Ordering::Relaxed) {
            0 => Answer::Cut,
            1 | 2 => refused(503, "no_leader", "later"),
            _ => granted(33),
        })
    });
    let client = node.client();
    let tried = client.lock("a", Mode::Exclusive, Duration::ZERO).await;
    if let Ok(guard) = tried {
        assert!(guard.release().await.unwrap());
    }
    assert!(
        node.sees(":release", |ask| ask.body["token"] == 33),
        "held by a session that lives on: {:?}",
        node.asked("")
    );
}

/// The first acquire is never answered, the first withdrawal is cut off.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_acquire_that_is_given_up_is_withdrawn_until_that_is_answered() {
    let asks = AtomicU32::new(0);
    let node = Fake::start(15_000, move |ask| {
        if ask.what.ends_with(":acquire") {
            return Some(Answer::Silence);
        }
        let withdrawal = ask.what.ends_with(":withdraw");
        (withdrawal && asks.fetch_add(1, Ordering::Relaxed) == 0).then_some(Answer::Cut)
    });
    let client = node.client();
    let given_up = timeout(
        Duration::from_millis(100),
        client.lock("a", Mode::Exclusive, LONG),
    );
    assert!(given_up.await.is_err(), "it was answered");
    assert!(node.sees(":withdraw", |_| node.asked(":withdraw").len() == 2));
    sleep(Duration::from_millis(200)).await;
    let withdrawn = node.asked(":withdraw");
    assert_eq!(withdrawn.len(), 2, "asked on after the answer");
    let id = &node.asked(":acquire")[0].body["request_id"];
    assert!(withdrawn.iter().all(|ask| ask.body["request_id"] == *id));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_release_that_is_given_up_goes_on_in_the_background() {
    let (back, tell) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU32::new(0)),
    );
    let (served, count) = (Arc::clone(&back), Arc::clone(&tell));
    let node = Fake::start(15_000, move |ask| {
        let release = ask.what.ends_with(":release") && !served.load(Ordering::Relaxed);
        release.then(|| {
            count.fetch_add(1, Ordering::Relaxed);
            Answer::Cut
        })
    });
    let guard = node
        .client()
        .lock("a", Mode::Exclusive, LONG)
        .await
        .unwrap();
    let given_up = timeout(Duration::from_millis(100), guard.release()).await;
    assert!(given_up.is_err(), "it was answered");
    let asked = node.asked(":release").len();
    back.store(true, Ordering::Relaxed);
    assert!(
        node.sees(":release", |_| node.asked(":release").len() > asked),
        "nobody asks for the release any more"
    );
    let ids = node.asked(":release");
    assert!(
        ids.iter()
            .all(|ask| ask.body["request_id"] == ids[0].body["request_id"])
    );
}

#[test]
fn a_guard_dropped_outside_the_runtime_is_released() {
    let node = Fake::start(15_000, |_| None);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let runtime = runtime.unwrap();
    let client = node.client();
    let guard = runtime
        .block_on(client.lock("a", Mode::Exclusive, LONG))
        .unwrap();
    drop(guard);
    assert!(
        node.sees(":release", |_| true),
        "held as long as the client lives"
    );
}

/// The node says that the session is gone long before the deadline.
#[tokio::test]
async fn a_loss_that_the_node_tells_of_is_told_at_once() {
    let node = Fake::start(6000, |ask| {
        let alive = ask.what.ends_with(":keepalive");
        alive.then(|| refused(404, "session_unknown", "new_session"))
    });
    let client = node.client();
    let mut late = Vec::new();
    for number in 0..10 {
        // A session for each namespace.
        let name = format!("n{number}/a");
        let guard = client.lock(&name, Mode::Exclusive, LONG).await.unwrap();
        late.push(tokio::spawn(async move {
            let begun = Instant::now();
            guard.lost().await;
            assert!(!guard.is_valid());
            begun.elapsed()
        }));
    }
    for told in late {
        let after = told.await.unwrap();
        assert!(
            after < Duration::from_secs(4),
            "told after {after:?}, the notice came after 2 s"
        );
    }
}

/// The first renewal is not answered, the second after the deadline.
#[tokio::test]
async fn a_lock_that_was_lost_does_not_come_back() {
    let asks = AtomicU32::new(0);
    let node = Fake::start(3000, move |ask| {
        let alive = ask.what.ends_with(":keepalive");
        alive.then(|| match asks.fetch_add(1, Ordering::Relaxed) {
            0 => Answer::Silence,
            _ => Answer::Late(
                Duration::from_millis(920),
                json!({ "ttl_ms": 3000, "epoch": 1 }),
            ),
        })
    });
    let options = raftlock_client::ClientOptions::default();
    let client = raftlock_client::Client::new(std::slice::from_ref(&node.addr), options).unwrap();
    let guard = client.lock("a", Mode::Exclusive, LONG).await.unwrap();
    guard.lost().await;
    assert!(!guard.is_valid());
    sleep(Duration::from_millis(300)).await;
    assert!(
        !guard.is_valid(),
        "it was told to be lost, and is held again"
    );
}

#[tokio::test]
async fn a_group_that_does_not_answer_keeps_nobody_from_the_others() {
    let node = Fake::start(15_000, |ask| {
        let slow = ask.body["lock"] == "slow/a";
        slow.then_some(Answer::Silence)
    });
    let client = node.client();
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(
                async move { client.lock("slow/a", Mode::Exclusive, Duration::ZERO).await },
            )
        })
        .collect();
    sleep(Duration::from_millis(100)).await;
    let begun = Instant::now();
    let guard = client.lock("fast/a", Mode::Exclusive, LONG).await.unwrap();
    assert!(
        begun.elapsed() < Duration::from_millis(300),
        "{:?}",
        begun.elapsed()
    );
    drop(guard);
    for each in waiting {
        each.await.unwrap().unwrap_err();
    }
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "one after the other: {:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn a_wait_without_end_is_no_panic() {
    let node = Fake::start(15_000, |_| None);
    let guard = node
        .client()
        .lock("a", Mode::Exclusive, Duration::MAX)
        .await;
    assert_eq!(guard.unwrap().fence(), 7);
}

#[tokio::test]
async fn a_close_is_asked_for_until_it_is_answered() {
    let asks = AtomicU32::new(0);
    let node = Fake::start(15_000, move |ask| {
        let close = ask.what.starts_with("DELETE ");
        (close && asks.fetch_add(1, Ordering::Relaxed) < 2).then_some(Answer::Cut)
    });
    let client = node.client();
    let guard = client.lock("a", Mode::Exclusive, LONG).await.unwrap();
    client.close().await;
    assert!(!guard.is_valid());
    let asked = node.asked("");
    let closes = asked.iter().filter(|ask| ask.what.starts_with("DELETE "));
    assert_eq!(closes.count(), 3);
}

#[tokio::test]
async fn who_would_wait_for_the_lock_waits_for_the_rate() {
    let asks = AtomicU32::new(0);
    let node = Fake::start(15_000, move |ask| {
        let early = ask.what.ends_with(":acquire") && asks.fetch_add(1, Ordering::Relaxed) < 3;
        early.then(|| refused(429, "rate_limited", "later"))
    });
    let client = node.client();
    let tried = client.lock("a", Mode::Exclusive, Duration::ZERO).await;
    assert_eq!(tried.unwrap_err().code, "rate_limited");
    assert!(client.lock("a", Mode::Exclusive, LONG).await.is_ok());
}
