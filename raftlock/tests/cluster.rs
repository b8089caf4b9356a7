//! Three replicas in one process: elections, leader loss, restarts.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{free_addr, peers};
use raftlock::{Config, Handle, serve};
use raftlock_client::{AcquireOptions, Api, Client, ClientOptions, Mode, Outcome, Security};

struct Cluster {
    nodes: BTreeMap<u64, Handle>,
    configs: BTreeMap<u64, Config>,
    _dir: tempfile::TempDir,
}

fn config(net: u8, dir: &Path, id: u64, peers: &BTreeMap<u64, String>, groups: u32) -> Config {
    Config {
        id,
        peers: peers.clone(),
        groups,
        ..Config::single(free_addr(net), dir.join(id.to_string()))
    }
}

impl Cluster {
    async fn start(net: u8, count: u64, groups: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let peers = peers(net, count);
        let configs: BTreeMap<u64, Config> = (1..=count)
            .map(|id| (id, config(net, dir.path(), id, &peers, groups)))
            .collect();
        let mut nodes = BTreeMap::new();
        for (id, config) in &configs {
            nodes.insert(*id, serve(config.clone()).await.unwrap());
        }
        for node in nodes.values() {
            assert!(node.wait_ready(Duration::from_secs(20)).await, "no leader");
        }
        Cluster {
            nodes,
            configs,
            _dir: dir,
        }
    }

    fn endpoints(&self) -> Vec<String> {
        self.configs
            .values()
            .map(|config| config.listen.to_string())
            .collect()
    }

    fn leader(&self, group: usize) -> Option<u64> {
        let leads = |node: &&u64| self.nodes[node].status()[group].state == "Leader";
        self.nodes.keys().find(leads).copied()
    }

    async fn stop_all(mut self) {
        while let Some((_, node)) = self.nodes.pop_first() {
            node.stop().await;
        }
    }
}

/// Repeats a call until it is done.
async fn until_ok<T, F: Future<Output = Outcome<T>>>(mut call: impl FnMut() -> F) -> T {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match call().await {
            Outcome::Ok(value) => return value,
            Outcome::DefiniteFail(error) | Outcome::Unknown(error) => {
                assert!(Instant::now() < until, "{error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_outlives_its_leader_and_the_session_goes_on() {
    let mut cluster = Cluster::start(11, 3, 1).await;
    let api = Api::new(&cluster.endpoints(), Duration::from_secs(2)).unwrap();
    let info = until_ok(|| api.create_session(10_000, "one", None)).await;
    let ask = AcquireOptions {
        request_id: Some(1),
        ..AcquireOptions::default()
    };
    let grant = until_ok(|| api.acquire("a", &info.session, &ask)).await;
    let leader = cluster.leader(0).unwrap();
    cluster.nodes.remove(&leader).unwrap().stop().await;
    let alive = until_ok(|| api.keepalive(&info.session)).await;
    assert!(alive.epoch > info.epoch);
    assert!(until_ok(|| api.check("a", grant.token)).await);
    // The same request id after the leader changed gets the same answer.
    assert_eq!(
        until_ok(|| api.acquire("a", &info.session, &ask)).await,
        grant
    );
    until_ok(|| api.release("a", &info.session, grant.token, Some(2))).await;
    let again = AcquireOptions {
        request_id: Some(3),
        ..AcquireOptions::default()
    };
    assert!(
        until_ok(|| api.acquire("a", &info.session, &again))
            .await
            .token
            > grant.token
    );
    // The stopped replica comes back and catches up.
    let back = serve(cluster.configs[&leader].clone()).await.unwrap();
    assert!(back.wait_ready(Duration::from_secs(10)).await);
    cluster.nodes.insert(leader, back);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_sends_plain_clients_to_the_leader() {
    let cluster = Cluster::start(14, 3, 1).await;
    let api = Api::new(&cluster.endpoints(), Duration::from_secs(2)).unwrap();
    let info = until_ok(|| api.create_session(10_000, "", None)).await;
    let leader = cluster.leader(0).unwrap();
    let follower = cluster.configs.keys().find(|id| **id != leader).unwrap();
    let base = |id: &u64| format!("http://{}", cluster.configs[id].listen);
    let http = Security::default().http(None).unwrap();
    let sent = http.get(format!("{}/v1/locks/a%20b?x=1", base(follower)));
    let sent = sent.send().await.unwrap();
    let place = format!("{}/v1/locks/a%20b?x=1", base(&leader));
    assert_eq!(
        (
            sent.status().as_u16(),
            sent.headers()["location"].to_str().unwrap()
        ),
        (307, &*place)
    );
    // A keepalive that was only sent on has not failed.
    let keepalive = format!("{}/v1/sessions/{}:keepalive", base(follower), info.session);
    let sent = http.post(keepalive).send().await.unwrap();
    assert_eq!(sent.status().as_u16(), 307);
    let metrics = http.get(format!("{}/metrics", base(follower)));
    let metrics = metrics.send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("\nraftlock_renew_failures_total 0\n"));
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_groups_and_a_client_that_opens_sessions_as_needed() {
    let cluster = Cluster::start(12, 3, 4).await;
    let options = ClientOptions {
        ttl: Duration::from_secs(5),
        ..ClientOptions::default()
    };
    let client = Client::new(&cluster.endpoints(), options).unwrap();
    let mut last = BTreeMap::new();
    for round in 0..3 {
        for name in ["a", "b", "c", "d", "e", "f"] {
            let guard = client
                .lock(name, Mode::Exclusive, Duration::from_secs(5))
                .await
                .unwrap();
            let before = last.insert(name, guard.fence());
            assert!(
                before < Some(guard.fence()),
                "round {round}: {before:?} then {}",
                guard.fence()
            );
            assert!(guard.release().await.unwrap());
        }
    }
    client.close().await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_replica_is_refused() {
    let mut cluster = Cluster::start(13, 3, 1).await;
    let api = Api::new(&cluster.endpoints(), Duration::from_secs(2)).unwrap();
    let info = until_ok(|| api.create_session(10_000, "one", None)).await;
    let leader = cluster.leader(0).unwrap();
    let victim = *cluster.configs.keys().find(|id| **id != leader).unwrap();
    cluster.nodes.remove(&victim).unwrap().stop().await;
    std::fs::remove_dir_all(&cluster.configs[&victim].data).unwrap();
    let wiped = serve(cluster.configs[&victim].clone()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(wiped.status()[0].leader, None, "nobody talks to it");
    until_ok(|| api.keepalive(&info.session)).await;
    wiped.stop().await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_was_set_back_while_all_were_stopped_is_refused() {
    let mut cluster = Cluster::start(15, 3, 1).await;
    let api = Api::new(&cluster.endpoints(), Duration::from_secs(2)).unwrap();
    until_ok(|| api.create_session(10_000, "one", None)).await;
    let leader = cluster.leader(0).unwrap();
    let victim = *cluster.configs.keys().find(|id| **id != leader).unwrap();
    let config = cluster.configs[&victim].clone();
    let saved = config.data.with_extension("saved");
    cluster.nodes.remove(&victim).unwrap().stop().await;
    std::fs::create_dir(&saved).unwrap();
    for entry in std::fs::read_dir(&config.data).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), saved.join(entry.file_name())).unwrap();
    }
    let again = serve(config.clone()).await.unwrap();
    for _ in 0..5 {
        until_ok(|| api.create_session(10_000, "two", None)).await;
    }
    let at = |node: &Handle| node.status()[0].applied;
    let until = Instant::now() + Duration::from_secs(10);
    while at(&again) != at(&cluster.nodes[&leader]) && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    again.stop().await;
    while let Some((_, node)) = cluster.nodes.pop_first() {
        node.stop().await;
    }
    std::fs::remove_dir_all(&config.data).unwrap();
    std::fs::rename(&saved, &config.data).unwrap();
    for id in [leader, victim] {
        let node = serve(cluster.configs[&id].clone()).await.unwrap();
        cluster.nodes.insert(id, node);
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let leads = |id| cluster.nodes[id].status()[0].state == "Leader";
    assert!(!leads(&leader) && !leads(&victim), "they are no majority");
    cluster.stop_all().await;
}
