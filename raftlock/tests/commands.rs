//! The program as its users meet it: what its commands print and what a node logs.
#![allow(clippy::unwrap_used)]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Server, certificates, eventually, free_addr, peers_argument};
use raftlock_client::{Client, ClientOptions, Mode};

/// `raftlock …` with these endpoints: whether it succeeded, what it printed, what it said on stderr.
fn raftlock(endpoints: &str, args: &[&str]) -> (bool, String, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_raftlock"))
        .args(args)
        .env("RAFTLOCK_ENDPOINTS", endpoints)
        .env("RUST_LOG", "error")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (done.status.success(), text(done.stdout), text(done.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_locks_are_listed_though_a_node_does_not_answer() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    let server = Server::start(&["--listen", "127.0.0.1:0", "--data", data]);
    let client = Client::new(&[server.url()], ClientOptions::default()).unwrap();
    let mut guards = Vec::new();
    for name in ["jobs/a", "jobs/b", "other"] {
        let guard = client.lock(name, Mode::Exclusive, Duration::ZERO).await;
        guards.push(guard.unwrap());
    }
    let endpoints = format!("{},{}", free_addr(51), server.addr);
    let (done, listed, said) = raftlock(&endpoints, &["locks", "--prefix", "jobs/"]);
    assert!(done && listed.lines().count() == 2, "{listed}{said}");
    assert!(
        said.contains("127.0.51.1") && said.contains("refused"),
        "{said}"
    );
    let (_, listed, _) = raftlock(&endpoints, &["locks"]);
    assert_eq!(listed.lines().count(), 3, "{listed}");
    let nobody = free_addr(51).to_string();
    let (done, _, said) = raftlock(&nobody, &["locks"]);
    assert!(!done && said.contains("no node answered"), "{said}");
    client.close().await;
}

#[test]
fn a_backup_is_for_its_owner_only_and_so_is_the_data() {
    let dir = tempfile::tempdir().unwrap();
    let (data, out) = (dir.path().join("data"), dir.path().join("backup"));
    let server = Server::start(&["--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]);
    std::fs::write(&out, "an older one, which everybody may read").unwrap();
    let endpoints = server.addr.to_string();
    let args = ["snapshot", &endpoints, "--out", out.to_str().unwrap()];
    let (done, said, why) = raftlock(&endpoints, &args);
    assert!(done && said.starts_with("1 groups"), "{said}{why}");
    for path in [&data, &out] {
        let mode = std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
    }
}

#[test]
fn a_file_without_a_key_is_called_so() {
    let dir = tempfile::tempdir().unwrap();
    let (_, cert, _) = certificates(dir.path(), "node", "127.0.0.1");
    let text = format!(
        "listen = \"127.0.0.1:0\"\ndata = {:?}\n[tls]\ncert = {cert:?}\nkey = {cert:?}\n",
        dir.path().join("data")
    );
    let file = dir.path().join("node.toml");
    std::fs::write(&file, text).unwrap();
    let (done, _, why) = raftlock("", &["serve", "--config", file.to_str().unwrap()]);
    let file = cert.display();
    assert!(
        !done && why.contains(&format!("{file}: holds no private key")),
        "{why}"
    );
}

fn replica(dir: &Path, id: u64, peers: &str) -> Server {
    let (data, id) = (dir.join(id.to_string()), id.to_string());
    Server::start_logging(&[
        "--listen",
        "127.0.52.1:0",
        "--data",
        data.to_str().unwrap(),
        "--id",
        &id,
        "--peers",
        peers,
    ])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_replica_does_not_fill_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let peers = peers_argument(52, 3);
    let mut nodes: Vec<Server> = (1..=2).map(|id| replica(dir.path(), id, &peers)).collect();
    let client = Client::new(&[nodes[0].url()], ClientOptions::default()).unwrap();
    eventually("a lock", async || {
        client.lock("a", Mode::Exclusive, Duration::ZERO).await.ok()
    })
    .await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    for node in &nodes {
        let said = node.said();
        assert!(said.contains("no connection; trying again"), "{said}");
        assert!(said.lines().count() < 40, "{said}");
    }
    for node in &mut nodes {
        node.signal("TERM");
        node.ended();
        let said = node.said();
        assert!(
            said.contains("stopping") && !said.contains("ERROR"),
            "{said}"
        );
    }
}
