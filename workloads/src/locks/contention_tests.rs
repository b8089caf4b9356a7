//! Every lock client under contention on a real server: one holder at a time,
//! fences that rise in the order of the grants.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::testing::{self, lock_context, want};

const CLIENTS: u32 = 4;
const ROUNDS: u32 = 3;

async fn contend(system: &'static str, addrs: &[&str], params: Value) {
    let inside = Arc::new(AtomicI32::new(0));
    let highest = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let mut cx = lock_context(system, addrs, params.clone(), client);
            cx.timeout = Duration::from_secs(10);
            let lock = (super::find(system).unwrap().new)(cx).unwrap();
            let (inside, highest) = (inside.clone(), highest.clone());
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    let held = lock.acquire(&want("contended", 10_000, 20_000)).await;
                    let held = held.unwrap_or_else(|e| panic!("{system} {client}.{round}: {e}"));
                    assert_eq!(
                        inside.fetch_add(1, Ordering::SeqCst),
                        0,
                        "{system}: two inside"
                    );
                    if let Some(fence) = held.fence {
                        let before = highest.swap(fence.0, Ordering::SeqCst);
                        assert!(before < fence.0, "{system}: {before} before {fence}");
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    assert!(lock.release(&held).await.unwrap(), "{system}: was held");
                }
                lock.close().await;
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn redis_and_redlock() {
    let Some(servers) = (0..3).map(|_| testing::redis()).collect::<Option<Vec<_>>>() else {
        return;
    };
    let addrs: Vec<&str> = servers.iter().map(|s| s.addr.as_str()).collect();
    contend("redis", &addrs[..1], json!({})).await;
    contend("redlock", &addrs, json!({"node_timeout_ms": 2_000})).await;
}

#[tokio::test]
async fn etcd() {
    let Some(server) = testing::etcd() else {
        return;
    };
    contend("etcd", &[&server.addr], json!({})).await;
}

#[tokio::test]
async fn zookeeper() {
    let Some(server) = testing::zookeeper() else {
        return;
    };
    contend("zookeeper", &[&server.addr], json!({})).await;
}

#[tokio::test]
async fn postgres() {
    let Some(server) = testing::postgres() else {
        return;
    };
    for variant in ["session", "transaction", "row"] {
        contend("postgres", &[&server.addr], json!({"variant": variant})).await;
    }
}
