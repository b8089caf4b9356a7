//! The docker host with a real Redis. Skipped, saying so, where there is no engine, no root or no image.
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use fencepost::{
    host::{self, DataFate, Host, HostKind, HostOptions, ProcessSpec, UnitId, docker, proc},
    images::{self, Say},
    system,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

const WITHIN: Duration = Duration::from_secs(20);

async fn ask(addr: SocketAddr, command: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(addr).await?;
    stream
        .write_all(format!("{command}\r\n").as_bytes())
        .await?;
    let mut answer = vec![0; 100];
    let n = stream.read(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer[..n])
        .trim()
        .replace("\r\n", " "))
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_lives_dies_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let options = HostOptions {
        run_id: format!("test-{}", std::process::id()),
        run_dir: dir.path().into(),
        say: Say::new(|line| println!("{line}")),
        ..HostOptions::default()
    };
    let host = match host::open(HostKind::Docker, options).await {
        Ok(host) => host,
        Err(e) => return println!("skipped: {e}"),
    };
    let tag = images::recipe_of("redis").unwrap().tag();
    if docker::engine()
        .await
        .unwrap()
        .inspect_image(&tag)
        .await
        .is_err()
    {
        host.stop().await.unwrap();
        return println!("skipped: no image {tag} (fencepost images build redis)");
    }
    let params = serde_json::from_str(r#"{"aof":"always"}"#).unwrap();
    let redis = system::open("redis", params).unwrap();
    let spec = redis.nodes(host.site()).remove(0);
    let node = host.start_node(0, spec).await.unwrap();
    let service = redis.join(host.site(), WITHIN).await.unwrap();
    println!("redis {} from {:?}", service.version, host.images().await);
    let addr = redis.client(host.site()).endpoints[0].addr;
    assert_eq!(addr.ip(), host.site().node_addr(0));

    ask(addr, "SET k v").await.unwrap();
    host.snapshot_node(0, "with-k").await.unwrap();
    let again = async |fate| {
        host.kill_node(0).await.unwrap();
        assert!(node.pids().is_empty());
        assert!(ask(addr, "PING").await.is_err());
        host.restart_node(0, fate).await.unwrap();
        redis.join(host.site(), WITHIN).await.unwrap();
        ask(addr, "GET k").await.unwrap()
    };
    let namespace = std::fs::read_link(node.netns().unwrap()).unwrap();
    assert_eq!(again(DataFate::Kept).await, "$1 v");
    assert_eq!(again(DataFate::Wiped).await, "$-1");
    assert_eq!(again(DataFate::Snapshot("with-k".into())).await, "$1 v");
    let pid = node.pid().unwrap();
    let now = std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    assert_eq!(now, namespace, "a restart keeps the namespace");

    worker_reaches(&*host, addr).await;
    assert!(
        std::fs::read_to_string(dir.path().join("logs/node-0.log"))
            .unwrap()
            .contains("Ready")
    );
    assert_eq!(host.node_exit(0).await, None);
    host.kill_node(0).await.unwrap();
    let how = host.node_exit_within(0, Duration::from_secs(5)).await;
    assert_eq!(how.as_deref(), Some("signal: 9 (SIGKILL)"));
    let run = host.site().clone();
    host.stop().await.unwrap();
    assert!(!proc::alive(pid));
    nothing_left(&format!("test-{}", std::process::id())).await;
    println!("{run:?}");
}

/// A program of this machine, with an address of its own on the run's network.
async fn worker_reaches(host: &dyn Host, redis: SocketAddr) {
    let script = r#"
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)
s.sendall(b"PING\r\n")
print(s.recv(100).decode().strip(), s.getsockname()[0], flush=True)
sys.stdin.read()
"#;
    let spec = ProcessSpec {
        id: UnitId::Worker(1),
        program: "python3".into(),
        args: vec![
            "-c".into(),
            script.into(),
            redis.ip().to_string(),
            redis.port().to_string(),
        ],
        env: BTreeMap::new(),
    };
    let mut worker = host.start_process(spec).await.unwrap();
    let mut line = String::new();
    BufReader::new(&mut worker.stdout)
        .read_line(&mut line)
        .await
        .unwrap();
    let own = host.site().addr(UnitId::Worker(1));
    assert_eq!(line.trim(), format!("+PONG {own}"));
}

async fn nothing_left(run_id: &str) {
    let engine = docker::engine().await.unwrap();
    let name = format!("fencepost-{run_id}");
    assert!(
        engine
            .inspect_network(
                &name,
                None::<bollard::query_parameters::InspectNetworkOptions>
            )
            .await
            .is_err()
    );
    let node = format!("{name}-node-0");
    assert!(
        engine
            .inspect_container(
                &node,
                None::<bollard::query_parameters::InspectContainerOptions>
            )
            .await
            .is_err()
    );
    assert!(proc::with_env("FENCEPOST_RUN", run_id).is_empty());
}
