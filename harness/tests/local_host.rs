//! The local host on the real thing. Not libtest: the namespace is entered while there is one thread.
//! It does the same as root, as an unprivileged user, and where namespaces are refused.

use std::{
    collections::BTreeMap, net::Ipv4Addr, path::Path, process::Command, sync::Arc, time::Duration,
};

use fencepost::host::{
    self, DataFate, Host, HostKind, HostOptions, NodeSpec, ProcessSpec, UnitId, namespace, proc,
    register, spawn::RUN_VAR,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

/// A node that listens where its arguments say, and keeps a file.
const SERVER: &str = r#"
import socket, sys
open(sys.argv[3] + "/started", "a").write("x")
s = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    c, peer = s.accept()
    c.sendall((peer[0] + "\n").encode())
    c.close()
"#;

/// A worker that connects to the node and says by which address the node saw it.
const WORKER: &str = r#"
import socket, sys
for line in sys.stdin:
    c = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)
    print(c.makefile().readline().strip(), flush=True)
"#;

const PORT: u16 = 7001;

fn main() {
    let mode = namespace::enter_run_namespace();
    println!("namespaces: {mode:?}");
    if Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: no python3");
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        whole_life(*mode == namespace::Mode::Root || *mode == namespace::Mode::User).await;
    });
    println!("ok");
}

async fn whole_life(namespaces: bool) {
    let dir = tempfile::tempdir().expect("a directory");
    let run_id = format!("test-{}", std::process::id());
    let options = HostOptions {
        run_id: run_id.clone(),
        run_dir: dir.path().into(),
        ..HostOptions::default()
    };
    let host = host::open(HostKind::Local, options).await.expect("a host");
    assert_eq!(host.site().no_network_faults().is_none(), namespaces);

    let spec = NodeSpec::new("server-0", "none", "python3").file("server.py", SERVER);
    let data = host.site().node_data_dir(0);
    let addr = host.site().node_addr(0);
    let spec = spec.args([
        format!("{data}/server.py"),
        addr.to_string(),
        PORT.to_string(),
        data.clone(),
    ]);
    let node = host.start_node(0, spec).await.expect("a node");
    assert_eq!(node.addr(), addr);
    answers(addr).await;

    let first = node.pid().expect("a pid");
    host.snapshot_node(0, "one").await.expect("a snapshot");
    let started = || std::fs::read_to_string(Path::new(&data).join("started")).expect("a file");
    assert_eq!(started(), "x");
    restarted(&*host, addr, DataFate::Kept).await;
    assert_eq!(started(), "xx");
    assert_ne!(node.pid(), Some(first));
    restarted(&*host, addr, DataFate::Snapshot("one".into())).await;
    assert_eq!(started(), "xx");
    restarted(&*host, addr, DataFate::Wiped).await;
    assert_eq!(started(), "x");

    let seen = worker_is_seen_as(&host, addr).await;
    if namespaces {
        assert_eq!(seen, host.site().addr(UnitId::Worker(3)));
        isolated(&node);
    }
    let dir = register::directory().expect("a register");
    assert_eq!(registered(&dir, &run_id), 1);
    says_how_a_node_ended(&*host).await;
    host.stop().await.expect("stopped");
    assert!(proc::with_env(RUN_VAR, &run_id).is_empty());
    assert_eq!(registered(&dir, &run_id), 0);
    assert!(!Path::new(&data).exists());
    assert!(node.pids().is_empty());
}

/// While it runs nothing is said.
async fn says_how_a_node_ended(host: &dyn Host) {
    assert_eq!(host.node_exit(0).await, None);
    let ends = NodeSpec::new("ends-1", "none", "sh").args(["-c", "exit 7"]);
    host.start_node(1, ends).await.expect("a node");
    let how = host.node_exit_within(1, Duration::from_secs(5)).await;
    assert_eq!(how.as_deref(), Some("exit status: 7"));
    host.kill_node(0).await.expect("killed");
    assert_eq!(
        host.node_exit(0).await.as_deref(),
        Some("signal: 9 (SIGKILL)")
    );
}

fn registered(dir: &Path, run_id: &str) -> usize {
    let entries = register::entries(dir);
    entries.iter().filter(|e| e.head.run_id == run_id).count()
}

async fn answers(addr: Ipv4Addr) {
    for _ in 0..200 {
        if TcpStream::connect((addr, PORT)).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{addr} does not answer");
}

async fn restarted(host: &dyn Host, addr: Ipv4Addr, fate: DataFate) {
    host.kill_node(0).await.expect("killed");
    assert!(TcpStream::connect((addr, PORT)).await.is_err());
    host.restart_node(0, fate).await.expect("restarted");
    answers(addr).await;
}

/// The worker runs below a shell, as `--worker "…"` may have it: its child must not survive either.
async fn worker_is_seen_as(host: &Arc<dyn Host>, node: Ipv4Addr) -> Ipv4Addr {
    let worker = ProcessSpec {
        id: UnitId::Worker(3),
        program: "/bin/sh".into(),
        args: vec![
            "-c".into(),
            "python3 -c \"$0\" \"$@\"; true".into(),
            WORKER.into(),
            node.to_string(),
            PORT.to_string(),
        ],
        env: BTreeMap::new(),
    };
    let mut worker = host.start_process(worker).await.expect("a worker");
    worker.stdin.write_all(b"go\n").await.expect("written");
    let mut lines = BufReader::new(&mut worker.stdout).lines();
    let line = tokio::time::timeout(Duration::from_secs(10), lines.next_line()).await;
    let line = line.expect("in time").expect("read").expect("a line");
    assert!(worker.unit.pids().len() >= 2, "shell and python");
    line.parse().expect("an address")
}

/// The unit's namespace is not this process's, and can be entered by its path.
fn isolated(node: &fencepost::host::Unit) {
    let path = node.netns().expect("a namespace");
    let own = std::fs::read_link("/proc/self/ns/net").expect("a link");
    let theirs = std::fs::read_link(path).expect("a link");
    assert_ne!(own, theirs);
    let pid = node.pid().expect("a pid");
    let by_pid = std::fs::read_link(format!("/proc/{pid}/ns/net")).expect("a link");
    assert_eq!(by_pid, theirs);
}
