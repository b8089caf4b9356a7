//! Replicas without a majority: none is ready, none names a leader, and clients are told to come again later.
#![allow(clippy::unwrap_used)]

mod common;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::{Server, eventually, free_addr};
use raftlock_client::{Api, Client, ClientOptions, Mode, RequestBuilder, Retry, Security};
use serde_json::{Value, json};

/// A silent leader is not taken for one after twelve heartbeats, which is 0.96 s; the rest is for a busy machine.
const BOUND: Duration = Duration::from_secs(3);

fn get(url: String) -> RequestBuilder {
    let limit = Some(Duration::from_secs(1));
    Security::default().http(limit).unwrap().get(url)
}

fn post(url: String) -> RequestBuilder {
    Security::default().http(None).unwrap().post(url)
}

struct Replicas {
    nodes: Vec<Option<Server>>,
    listen: Vec<SocketAddr>,
    peers: String,
    dir: tempfile::TempDir,
}

impl Replicas {
    /// Three that are ready.
    async fn start(net: u8) -> Self {
        let peers: Vec<String> = (1..=3)
            .map(|id| format!("{id}={}", free_addr(net)))
            .collect();
        let mut replicas = Replicas {
            nodes: Vec::new(),
            listen: (0..3).map(|_| free_addr(net)).collect(),
            peers: peers.join(","),
            dir: tempfile::tempdir().unwrap(),
        };
        replicas.nodes = (0..3).map(|at| Some(replicas.node(at))).collect();
        for at in 0..3 {
            replicas.is_ready(at, true).await;
        }
        replicas
    }

    fn node(&self, at: usize) -> Server {
        let (listen, id) = (self.listen[at].to_string(), (at + 1).to_string());
        let data = self.dir.path().join(&id);
        let data = data.to_str().unwrap();
        Server::start(&[
            "--listen",
            &listen,
            "--data",
            data,
            "--id",
            &id,
            "--peers",
            &self.peers,
        ])
    }

    fn url(&self, at: usize) -> String {
        format!("http://{}", self.listen[at])
    }

    fn signal(&self, at: usize, name: &str) {
        self.nodes[at].as_ref().unwrap().signal(name);
    }

    async fn is_ready(&self, at: usize, ready: bool) {
        let what = format!("node {at} ready: {ready}");
        eventually(&what, async || {
            let answer = get(format!("{}/readyz", self.url(at))).send().await.ok()?;
            let code = if ready { 200 } else { 503 };
            (answer.status().as_u16() == code).then_some(())
        })
        .await;
    }

    async fn leader(&self, at: usize) -> Option<usize> {
        let status = get(format!("{}/v1/status", self.url(at))).send();
        let status: Value = status.await.unwrap().json().await.unwrap();
        let leader = &status["groups"][0]["leader"];
        leader.as_u64().map(|id| id as usize - 1)
    }

    /// The leader has gone silent: node `at` says so, and sends nobody away.
    async fn assert_leaderless(&self, at: usize, since: Instant, session: &str) {
        self.is_ready(at, false).await;
        // The other group's may have been heard a little earlier.
        let unknown = async || self.leader(at).await.is_none().then_some(());
        eventually("it names no leader", unknown).await;
        let late = since.elapsed();
        assert!(late < BOUND, "ready for {late:?} without a majority");
        let base = self.url(at);
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

    async fn session(&self) -> String {
        let endpoints: Vec<String> = (0..3).map(|at| self.url(at)).collect();
        let api = Api::new(&endpoints, Duration::from_secs(2)).unwrap();
        let opened = async || api.create_session(60_000, "test", None).await.ok();
        eventually("a session", opened).await.session
    }
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
    replicas.assert_leaderless(survivor, since, &session).await;
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
    replicas.assert_leaderless(leader, since, &session).await;
    for at in followers {
        replicas.signal(at, "CONT");
    }
    for at in 0..3 {
        replicas.is_ready(at, true).await;
    }
}
