#![allow(clippy::unwrap_used)]
use super::*;
use crate::testing::{Server, free_port, lock_context, redis, start, want};

fn replica(of: &Server) -> Option<Server> {
    let port = free_port();
    let (host, their) = of.addr.rsplit_once(':').unwrap();
    start("redis-server", port, |_| {
        [
            "--port",
            &port.to_string(),
            "--save",
            "",
            "--replicaof",
            host,
            their,
        ]
        .map(String::from)
        .into()
    })
}

fn sentinel(of: &Server) -> Option<Server> {
    let port = free_port();
    let (host, their) = of.addr.rsplit_once(':').unwrap();
    start("redis-server", port, |dir| {
        let conf = format!("{dir}/sentinel.conf");
        let text = format!(
            "port {port}\nsentinel monitor mymaster {host} {their} 1\n\
             sentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 2000\n"
        );
        std::fs::write(&conf, text).unwrap();
        vec![conf, "--sentinel".into()]
    })
}

fn client(sentinel: &Server, replicas: u32) -> BoxedLock {
    let json = serde_json::json!({"wait_replicas": replicas});
    let mut cx = lock_context("redis-failover", &[&sentinel.addr], json, 0);
    cx.system.endpoints[0].name = "sentinel-0".into();
    new(cx).unwrap()
}

async fn eventually<T>(mut what: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..200 {
        if let Some(t) = what().await {
            return t;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not within ten seconds");
}

#[tokio::test]
async fn it_follows_the_sentinels_to_the_promoted_replica() {
    let Some(primary) = redis() else { return };
    let Some(_replica) = replica(&primary) else {
        return;
    };
    let Some(sentinel) = sentinel(&primary) else {
        return;
    };
    let lock = client(&sentinel, 1);
    let first = eventually(async || lock.acquire(&want("L0", 60_000, 0)).await.ok()).await;
    lock.renew(&first, Duration::from_secs(60)).await.unwrap();
    // The sentinel learns of replicas from the primary, every ten seconds.
    let link = RedisLink::new(sentinel.addr.clone(), Duration::from_secs(2));
    eventually(async || {
        let ask = redis::cmd("SENTINEL")
            .arg("replicas")
            .arg("mymaster")
            .to_owned();
        link.call::<Vec<Value>>(&ask)
            .await
            .ok()
            .filter(|r| !r.is_empty())
    })
    .await;
    drop(primary);
    let held = eventually(async || lock.release(&first).await.ok()).await;
    assert!(held, "WAIT had the grant on the replica");
    let second = eventually(async || lock.acquire(&want("L1", 1_000, 0)).await.err()).await;
    assert_eq!(
        second,
        CallError::definite("not replicated"),
        "no replica is left"
    );
}
