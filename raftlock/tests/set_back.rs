//! A replica whose directory is older than what it acknowledged meets one that never led.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::time::Duration;

use common::eventually;
use common::replicas::{Replicas, post};

/// How long replicas may take to tell each other how far they are; they do so every second, later on a busy machine.
const TOLD: Duration = Duration::from_secs(5);

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// The one that leads all groups. The lower of two leaders is asked to hand over: of followers that have the whole log the
/// highest takes over, so that both end there; the higher would only hand over to and fro.
async fn only_leader(replicas: &Replicas) -> usize {
    eventually("one leads all", async || {
        let status = replicas.status(0).await;
        let (locks, map) = (&status["groups"][0]["leader"], &status["map"]["leader"]);
        let (locks, map) = (locks.as_u64()? as usize - 1, map.as_u64()? as usize - 1);
        if locks != map {
            let path = format!("{}/v1/admin/transfer-leader", replicas.url(locks.min(map)));
            post(path).send().await.unwrap();
        }
        (locks == map).then_some(locks)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_never_led_knows_that_a_replica_was_set_back() {
    let mut replicas = Replicas::start(56).await;
    replicas.session().await;
    let leader = only_leader(&replicas).await;
    let (victim, third) = ((leader + 1) % 3, (leader + 2) % 3);
    let data = replicas.data(victim);
    let saved = data.with_extension("saved");
    replicas.signal(victim, "KILL");
    replicas.nodes[victim] = None;
    copy(&data, &saved);
    replicas.nodes[victim] = Some(replicas.node(victim));
    replicas.is_ready(victim, true).await;
    for _ in 0..5 {
        replicas.session().await;
    }
    tokio::time::sleep(TOLD).await;
    for at in [victim, leader] {
        replicas.signal(at, "KILL");
        replicas.nodes[at] = None;
    }
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&saved, &data).unwrap();
    let mut node = replicas.node(victim);
    eventually("it stops", async || node.has_ended().then_some(())).await;
    assert!(node.said().contains("rolled back"), "{}", node.said());
    replicas.is_ready(third, false).await;
}
