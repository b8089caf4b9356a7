//! The bucket map: made once, the same on all nodes, kept over restarts; clients read it anew when they are told of a newer one.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use common::{eventually, free_addr, hold, peers};
use raftlock::buckets::{BucketMap, bucket_of};
use raftlock::{Config, Handle, ServeError, serve};
use raftlock_client::{Api, Client, ClientOptions, Mode, Security, Stream};
use serde_json::{Value, json};

async fn json_of(handle: &Handle, path: &str) -> Value {
    let http = Security::default().http(None).unwrap();
    let url = format!("http://{}{path}", handle.addr());
    let text = http.get(url).send().await.unwrap().text().await.unwrap();
    serde_json::from_str(&text).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_map_is_kept_in_a_group_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let peers = peers(42, 3);
    let config = |id: u64| Config {
        id,
        peers: peers.clone(),
        groups: 4,
        ..Config::single(free_addr(42), dir.path().join(id.to_string()))
    };
    let configs: Vec<Config> = (1..=3).map(config).collect();
    let mut nodes = Vec::new();
    for config in &configs {
        nodes.push(serve(config.clone()).await.unwrap());
    }
    let even = json!({ "version": 1, "buckets": 4096, "groups": BucketMap::even(4).groups });
    for node in &nodes {
        assert!(node.wait_ready(Duration::from_secs(20)).await);
        assert_eq!(json_of(node, "/v1/map").await, even);
        let status = json_of(node, "/v1/status").await;
        assert_eq!(
            (
                status["groups"].as_array().unwrap().len(),
                &status["map"]["version"]
            ),
            (4, &json!(1))
        );
    }
    while let Some(node) = nodes.pop() {
        node.stop().await;
    }
    // Made with 4 groups; another number would take one group for another.
    let other = Config {
        groups: 5,
        ..configs[0].clone()
    };
    let why = serve(other)
        .await
        .err()
        .map(|error: ServeError| error.to_string());
    assert!(
        why.as_ref().is_some_and(|why| why.contains("--groups 4")),
        "{why:?}"
    );
    for config in &configs {
        nodes.push(serve(config.clone()).await.unwrap());
    }
    // All first: the last one standing has no majority and is not ready.
    for node in &nodes {
        assert!(node.wait_ready(Duration::from_secs(20)).await);
        assert_eq!(json_of(node, "/v1/map").await, even, "after a restart");
    }
    for node in nodes {
        node.stop().await;
    }
}

fn name_in(group: u32) -> String {
    let map = BucketMap::even(2);
    (0..)
        .map(|number| format!("n{number}"))
        .find(|name| map.group_of(name) == group)
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_another_group_is_refused_with_the_maps_version() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config {
        groups: 2,
        ..Config::single("127.0.0.1:0".parse().unwrap(), dir.path().to_owned())
    };
    let handle = serve(config).await.unwrap();
    let url = format!("http://{}", handle.addr());
    let (stream, _events) = Stream::connect(&url).await.unwrap();
    let (session, _) = hold(&stream, &name_in(0), 5000).await;
    let api = Api::new(&[url], Duration::from_secs(5)).unwrap();
    let opened = api.create_session(5000, "", Some(&name_in(0))).await;
    assert_eq!(opened.result().unwrap().map, 1);
    let stray = name_in(1);
    let plain = common::wait(0);
    let errors = [
        stream
            .acquire(&stray, &session, &plain)
            .await
            .result()
            .unwrap_err(),
        api.acquire(&stray, &session, &plain)
            .await
            .result()
            .unwrap_err(),
        api.release(&stray, &session, 1, None)
            .await
            .result()
            .unwrap_err(),
    ];
    for error in errors {
        assert_eq!((error.code.as_str(), error.map), ("wrong_group", Some(1)));
    }
    // Who names a lock and a group means one of them.
    let http = Security::default().http(None).unwrap();
    for (group, status) in [(0, 400), (1, 200)] {
        let ask = http.post(format!("http://{}/v1/sessions", handle.addr()));
        let ask = ask.json(&json!({ "lock": stray, "group": group }));
        assert_eq!(ask.send().await.unwrap().status().as_u16(), status);
    }
    handle.stop().await;
}

/// A cluster that has moved the lock's bucket to group 1 since the client read the map.
struct Moved {
    maps_read: AtomicU64,
    groups: u32,
}

async fn map(State(moved): State<Arc<Moved>>) -> Json<Value> {
    let version = 1 + moved.maps_read.fetch_add(1, Ordering::Relaxed).min(1);
    let mut map = BucketMap::even(2);
    if version == 2 {
        map.groups[bucket_of("a")] = moved.groups;
    }
    Json(json!({ "version": version, "buckets": 4096, "groups": map.groups }))
}

async fn acquire(
    State(moved): State<Arc<Moved>>,
    Json(ask): Json<Value>,
) -> (StatusCode, Json<Value>) {
    let group = u32::from_str_radix(&ask["session"].as_str().unwrap()[..2], 16).unwrap();
    if group == moved.groups {
        return (StatusCode::OK, Json(json!({ "token": 5, "count": 1 })));
    }
    let error = json!({ "code": "wrong_group", "message": "moved", "effect": "none", "retry": "new_session", "map": 2 });
    (StatusCode::CONFLICT, Json(json!({ "error": error })))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_an_old_map_reads_it_anew() {
    let before = BucketMap::even(2).group_of("a");
    let moved = Arc::new(Moved {
        maps_read: AtomicU64::new(0),
        groups: 1 - before,
    });
    let opened = AtomicU64::new(0);
    let opened = Arc::new(opened);
    let count = Arc::clone(&opened);
    // The first session comes from a node that knows the old map, the second from one that knows the new one.
    let open = move || async move {
        let group = match count.fetch_add(1, Ordering::Relaxed) {
            0 => before,
            _ => 1 - before,
        };
        let session = format!("{group:02x}00000000000001");
        Json(json!({ "session": session, "ttl_ms": 5000, "epoch": 1, "group": group, "map": 1 }))
    };
    let router = Router::new()
        .route("/v1/map", get(map))
        .route("/v1/sessions", post(open))
        .route("/v1/locks/{*rest}", post(acquire))
        .with_state(Arc::clone(&moved));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = [listener.local_addr().unwrap().to_string()];
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let client = Client::new(&endpoint, ClientOptions::default()).unwrap();
    let guard = client
        .lock("a", Mode::Exclusive, Duration::ZERO)
        .await
        .unwrap();
    assert_eq!((guard.fence(), opened.load(Ordering::Relaxed)), (5, 2));
    assert_eq!(moved.maps_read.load(Ordering::Relaxed), 2);
    assert_eq!(client.api().map().await.result().unwrap().version, 2);
    server.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_nobody_awaits_any_more_keeps_no_lock() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::single("127.0.0.1:0".parse().unwrap(), dir.path().to_owned());
    let handle = serve(config).await.unwrap();
    let endpoint = [handle.addr().to_string()];
    let client = || Client::new(&endpoint, ClientOptions::default()).unwrap();
    let (first, second) = (client(), client());
    let guard = first
        .lock("a", Mode::Exclusive, Duration::ZERO)
        .await
        .unwrap();
    let asked = second.lock("a", Mode::Exclusive, Duration::from_secs(30));
    let given_up = tokio::time::timeout(Duration::from_millis(300), asked).await;
    assert!(given_up.is_err());
    assert!(guard.release().await.unwrap());
    // It is granted to the one that went, and given back.
    let free = async || {
        let lock = first.api().show("a").await.result().unwrap();
        (!lock.held && lock.waiters == 0).then_some(())
    };
    eventually("the lock is free again", free).await;
    let guard = first
        .lock("a", Mode::Exclusive, Duration::ZERO)
        .await
        .unwrap();
    assert!(guard.release().await.unwrap());
    handle.stop().await;
}
