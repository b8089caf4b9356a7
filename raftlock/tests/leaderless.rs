//! Replicas without a majority: none is ready, none names a leader, and clients are told to come again later.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::eventually;
use common::replicas::{Replicas, post};
use raftlock_client::{Client, ClientOptions, Mode, Retry};
use serde_json::{Value, json};

/// A silent leader is not taken for one after twelve heartbeats, which is 0.96 s; the rest is for a busy machine.
const BOUND: Duration = Duration::from_secs(3);

/// The leader has gone silent: node `at` says so, and sends nobody away.
async fn assert_leaderless(replicas: &Replicas, at: usize, since: Instant, session: &str) {
    replicas.is_ready(at, false).await;
    // The other group's may have been heard a little earlier.
    let unknown = async || replicas.leader(at).await.is_none().then_some(());
    eventually("it names no leader", unknown).await;
    let late = since.elapsed();
    assert!(late < BOUND, "ready for {late:?} without a majority");
    let base = replicas.url(at);
    let acquire = post(format!("{base}/v1/locks/a:acquire"));
    let keepalive = format!("{base}/v1/sessions/{session}:keepalive");
    for ask in [
        acquire.json(&json!({ "session": session })),
        post(keepalive),
    ] {
        let told = ask.send().await.unwrap();
        let (code, headers) = (told.status().as_u16(), told.headers().clone());
        let told: Value = told.json().await.unwrap();
        assert_eq!(code, 503, "{told}");
        assert_eq!(told["error"]["code"], "no_leader");
        assert_eq!(headers["retry-after"], "1");
        assert!(!headers.contains_key("location"), "{headers:?}");
    }
    let client = Client::new(&[base], ClientOptions::default()).unwrap();
    let error = client
        .lock("a", Mode::Exclusive, Duration::ZERO)
        .await
        .unwrap_err();
    assert_eq!((&*error.code, error.retry), ("no_leader", Retry::Later));
    assert!(error.retry_after_ms.is_some());
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_lost_its_leader_and_the_majority_names_nobody() {
    let mut replicas = Replicas::start(54).await;
    let session = replicas.session().await;
    let leader = replicas.leader(0).await.unwrap();
    let (survivor, other) = ((leader + 1) % 3, (leader + 2) % 3);
    for at in [other, leader] {
        replicas.signal(at, "KILL");
        replicas.nodes[at] = None;
    }
    let since = Instant::now();
    assert_leaderless(&replicas, survivor, since, &session).await;
    replicas.nodes[other] = Some(replicas.node(other));
    replicas.is_ready(survivor, true).await;
    replicas.is_ready(other, true).await;
    let endpoints = [replicas.url(survivor)];
    let client = Client::new(&endpoints, ClientOptions::default()).unwrap();
    let wait = Duration::from_secs(10);
    let held = client.lock("a", Mode::Exclusive, wait).await.unwrap();
    assert!(held.release().await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_followers_are_silent_names_nobody_until_they_are_back() {
    let replicas = Replicas::start(55).await;
    let session = replicas.session().await;
    let leader = replicas.leader(0).await.unwrap();
    let followers = [(leader + 1) % 3, (leader + 2) % 3];
    for at in followers {
        replicas.signal(at, "STOP");
    }
    let since = Instant::now();
    assert_leaderless(&replicas, leader, since, &session).await;
    for at in followers {
        replicas.signal(at, "CONT");
    }
    for at in 0..3 {
        replicas.is_ready(at, true).await;
    }
}
