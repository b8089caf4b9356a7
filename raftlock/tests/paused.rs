//! A leader that stands still: its processes are stopped by a signal, its connections stay open.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::{Server, eventually, peers_argument};
use raftlock_client::{Client, ClientOptions, Mode, Security};
use serde_json::Value;

/// The number of the node that leads group 0.
async fn leader(nodes: &[Server]) -> usize {
    let http = Security::default()
        .http(Some(Duration::from_secs(1)))
        .unwrap();
    eventually("a leader", async || {
        let url = format!("{}/v1/status", nodes[0].url());
        let status: Value = http.get(url).send().await.ok()?.json().await.ok()?;
        let id = status["groups"][0]["leader"].as_u64()?;
        Some(id as usize - 1)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_client_follows_its_session_to_the_next_leader() {
    let dir = tempfile::tempdir().unwrap();
    let peers = peers_argument(53, 3);
    let start = |id: usize| {
        let (data, id) = (dir.path().join(id.to_string()), id.to_string());
        let listen = format!("127.0.53.{id}:0");
        Server::start(&[
            "--listen",
            &listen,
            "--data",
            data.to_str().unwrap(),
            "--id",
            &id,
            "--peers",
            &peers,
        ])
    };
    let nodes: Vec<Server> = (1..=3).map(start).collect();
    let endpoints: Vec<String> = nodes.iter().map(Server::url).collect();
    let options = ClientOptions {
        ttl: Duration::from_millis(1500),
        timeout: Duration::from_millis(500),
        ..ClientOptions::default()
    };
    let [one, two] = [(); 2].map(|()| Client::new(&endpoints, options.clone()).unwrap());
    let held = eventually("a lock", async || {
        one.lock("a", Mode::Exclusive, Duration::ZERO).await.ok()
    })
    .await;
    let waiting = tokio::spawn(async move {
        let guard = two
            .lock("a", Mode::Exclusive, Duration::from_secs(30))
            .await;
        (Instant::now(), guard.map(|guard| guard.fence()))
    });
    eventually("it waits", async || {
        let lock = one.api().show("a").await.ok()?;
        (lock.waiters == 1).then_some(())
    })
    .await;
    let leader = &nodes[leader(&nodes).await];
    leader.signal("STOP");
    let fence = held.fence();
    held.release().await.unwrap();
    let released = Instant::now();
    let (at, granted) = waiting.await.unwrap();
    leader.signal("CONT");
    assert!(granted.unwrap() > fence);
    let late = at.saturating_duration_since(released);
    assert!(
        late < Duration::from_secs(4),
        "granted {late:?} after the release"
    );
}
