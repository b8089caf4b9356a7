//! A backup of three replicas, restored into a cluster of new ones: tokens rise above all of the lost history.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::time::Duration;

use common::{free_addr, peers};
use raftlock::backup::{Backup, begin_with};
use raftlock::wal::RealDir;
use raftlock::{Config, Handle, serve};
use raftlock_client::{AcquireOptions, Api, Outcome, Security};

const NET: u8 = 41;

async fn cluster(dir: &Path) -> (Vec<Handle>, Api) {
    let peers = peers(NET, 3);
    let mut nodes = Vec::new();
    for id in 1..=3 {
        let config = Config {
            id,
            peers: peers.clone(),
            groups: 2,
            ..Config::single(free_addr(NET), dir.join(id.to_string()))
        };
        nodes.push(serve(config).await.unwrap());
    }
    for node in &nodes {
        assert!(node.wait_ready(Duration::from_secs(20)).await, "no leader");
    }
    let endpoints: Vec<String> = nodes.iter().map(|node| node.addr().to_string()).collect();
    let api = Api::new(&endpoints, Duration::from_secs(5)).unwrap();
    (nodes, api)
}

async fn until_ok<T, F: Future<Output = Outcome<T>>>(mut call: impl FnMut() -> F) -> T {
    for _ in 0..400 {
        if let Outcome::Ok(value) = call().await {
            return value;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("no success within 10 s");
}

async fn take(api: &Api, lock: &str) -> (String, u64) {
    let opened = until_ok(|| api.create_session(3_000, "", Some(lock)))
        .await
        .session;
    let options = AcquireOptions::default();
    let grant = until_ok(|| api.acquire(lock, &opened, &options)).await;
    (opened, grant.token)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_above_the_lost_history_and_holders_keep_their_locks() {
    let dir = tempfile::tempdir().unwrap();
    let (nodes, api) = cluster(&dir.path().join("old")).await;
    let (holder, token) = take(&api, "held").await;
    let mut bytes = Vec::new();
    // Replicas apply a moment later than the leader: take the one that has it.
    for node in nodes.iter().cycle().take(60) {
        let url = format!("http://{}/v1/admin/backup", node.addr());
        let response = Security::default()
            .http(None)
            .unwrap()
            .get(url)
            .send()
            .await
            .unwrap();
        bytes = response.bytes().await.unwrap().to_vec();
        let (backup, _) = Backup::from_bytes(&bytes).unwrap();
        if (0..2).any(|group| backup.machine(group).unwrap().lock("held").is_some()) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Lost with the old cluster:
    let (_, lost) = take(&api, "held-later").await;
    for node in nodes {
        node.stop().await;
    }

    let (backup, _) = Backup::from_bytes(&bytes).unwrap();
    assert!(
        backup.restored(0, true).is_err(),
        "an epoch that was used before"
    );
    let restored = backup.restored(7, true).unwrap();
    for id in 1..=3 {
        let data = RealDir::open(&dir.path().join("new").join(id.to_string())).unwrap();
        begin_with(&data, &restored).unwrap();
        assert!(
            begin_with(&data, &restored).is_err(),
            "into a directory in use"
        );
    }
    let (nodes, api) = cluster(&dir.path().join("new")).await;
    let options = AcquireOptions::default();
    until_ok(|| api.keepalive(&holder)).await;
    assert!(
        until_ok(|| api.check("held", token)).await,
        "held as the backup has it"
    );
    let (_, next) = take(&api, "held-later").await;
    assert!(next > lost && next >> 48 == 7, "{next} after {lost}");
    until_ok(|| api.release("held", &holder, token, Some(1))).await;
    let grant = until_ok(|| api.acquire("held", &holder, &options)).await;
    assert!(grant.token > token && grant.token >> 48 == 7);
    // A session that nobody keeps alive ends, also under the restored epoch.
    tokio::time::sleep(Duration::from_millis(4_500)).await;
    assert!(api.keepalive(&holder).await.result().is_err(), "it expired");
    for node in nodes {
        node.stop().await;
    }
}

#[test]
fn a_backup_without_sessions_and_a_damaged_one() {
    let mut backup = Backup::default();
    // One group of locks, and the bucket map's.
    for _ in 0..2 {
        backup.push(&raftlock::machine::Machine::new()).unwrap();
    }
    let mut bytes = backup.to_bytes().unwrap();
    let (same, _) = Backup::from_bytes(&bytes).unwrap();
    assert_eq!(same.groups(), 1);
    let restored = same.restored(3, false).unwrap();
    assert_eq!(restored.machine(0).unwrap().restore_epoch(), 3);
    assert!(restored.machine(2).is_err(), "no such group");
    assert!(restored.restored(3, false).is_err(), "the same epoch twice");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    assert!(Backup::from_bytes(&bytes).is_err());
}
