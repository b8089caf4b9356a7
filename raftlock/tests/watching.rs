//! Metrics, events, health and readiness of a real server on loopback.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use raftlock::{Config, Handle, serve};
use raftlock_client::{AcquireOptions, Api, Security};
use serde_json::Value;
use tokio::time::{Instant, timeout};

async fn start() -> (Handle, Api, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::single("127.0.0.1:0".parse().unwrap(), dir.path().to_owned());
    let handle = serve(config).await.unwrap();
    let api = Api::new(&[handle.addr().to_string()], Duration::from_secs(5)).unwrap();
    (handle, api, dir)
}

async fn get(handle: &Handle, path: &str) -> String {
    let http = Security::default().http(None).unwrap();
    let url = format!("http://{}{path}", handle.addr());
    http.get(url).send().await.unwrap().text().await.unwrap()
}

fn value(metrics: &str, name: &str) -> f64 {
    let line = metrics
        .lines()
        .find(|line| line.starts_with(name))
        .unwrap_or_else(|| panic!("no {name}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_count_what_happened() {
    let (handle, api, _dir) = start().await;
    let keeper = api
        .create_session(10_000, "", None)
        .await
        .result()
        .unwrap()
        .session;
    let dying = api
        .create_session(150, "", None)
        .await
        .result()
        .unwrap()
        .session;
    let try_it = AcquireOptions::default();
    let grant = api.acquire("a", &keeper, &try_it).await.result().unwrap();
    api.acquire("b", &dying, &try_it).await.result().unwrap();
    assert!(api.acquire("a", &dying, &try_it).await.result().is_err());
    api.release("a", &keeper, grant.token, None)
        .await
        .result()
        .unwrap();
    api.acquire("c", &keeper, &try_it).await.result().unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    let mut metrics = get(&handle, "/metrics").await;
    while value(&metrics, "raftlock_expired_while_held_total") < 1.0 && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(20)).await;
        metrics = get(&handle, "/metrics").await;
    }
    assert!(api.keepalive(&dying).await.result().is_err());
    let metrics = get(&handle, "/metrics").await;
    let expected = [
        ("raftlock_leader", 1.0),
        ("raftlock_sessions{", 1.0),
        ("raftlock_locks_held", 1.0),
        ("raftlock_waiters", 0.0),
        ("raftlock_grants_total", 3.0),
        ("raftlock_releases_total", 1.0),
        ("raftlock_sessions_expired_total", 1.0),
        ("raftlock_expired_while_held_total", 1.0),
        ("raftlock_refusals_total", 1.0),
        ("raftlock_renew_failures_total", 1.0),
    ];
    for (name, count) in expected {
        assert_eq!(value(&metrics, name), count, "{name} in\n{metrics}");
    }
    for name in [
        "raftlock_fsync_seconds_count",
        "raftlock_commit_seconds_count",
    ] {
        assert!(value(&metrics, name) >= 6.0, "{name} in\n{metrics}");
    }
    assert!(get(&handle, "/readyz").await.contains("\"ready\":true"));
    assert!(get(&handle, "/healthz").await.contains("\"ok\""));
    handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_tell_what_happens_to_locks_of_a_prefix() {
    let (handle, api, _dir) = start().await;
    let http = Security::default().http(None).unwrap();
    let url = format!("http://{}/v1/events?prefix=jobs/", handle.addr());
    let mut events = http.get(url).send().await.unwrap();
    let jobs = api
        .create_session(300, "", Some("jobs/a"))
        .await
        .result()
        .unwrap()
        .session;
    let other = api
        .create_session(300, "", Some("x/a"))
        .await
        .result()
        .unwrap()
        .session;
    let try_it = AcquireOptions::default();
    api.acquire("x/a", &other, &try_it).await.result().unwrap();
    let grant = api
        .acquire("jobs/a", &jobs, &try_it)
        .await
        .result()
        .unwrap();
    assert!(
        api.acquire("jobs/a", &jobs, &try_it)
            .await
            .result()
            .is_err()
    );
    api.release("jobs/a", &jobs, grant.token, None)
        .await
        .result()
        .unwrap();
    let last = api
        .acquire("jobs/b", &jobs, &try_it)
        .await
        .result()
        .unwrap();
    let mut text = String::new();
    while text.lines().count() < 5 {
        let chunk = timeout(Duration::from_secs(5), events.chunk()).await;
        let chunk = chunk
            .unwrap_or_else(|_| panic!("only {text}"))
            .unwrap()
            .unwrap();
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    let seen: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let short: Vec<(&str, &str, Option<u64>)> = seen
        .iter()
        .map(|event| {
            let (what, lock) = (
                event["event"].as_str().unwrap(),
                event["lock"].as_str().unwrap(),
            );
            (what, lock, event["token"].as_u64())
        })
        .collect();
    let expected = [
        ("granted", "jobs/a", Some(grant.token)),
        ("refused", "jobs/a", None),
        ("released", "jobs/a", Some(grant.token)),
        ("granted", "jobs/b", Some(last.token)),
        ("expired", "jobs/b", Some(last.token)),
    ];
    assert_eq!(short, expected);
    assert_eq!(seen[1]["code"], "busy");
    assert_eq!(seen[0]["session"], jobs.as_str());
    drop(events);
    handle.stop().await;
}
