//! Every lock service on real servers: it starts, says its version, names its leader, hands over, and comes back after
//! a node was killed. Not libtest: the local host enters its namespace while there is one thread.
//!
//! `cargo test -p fencepost --test systems -- [local|docker] [SYSTEM…]`. What this machine lacks is skipped, saying so;
//! on docker, so is what has no image yet (`fencepost images build`).
#![allow(clippy::unwrap_used)]

use std::{
    process::{Command, ExitCode},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use fencepost::{
    host::{self, DataFate, Host, HostError, HostKind, HostOptions, docker, namespace},
    images,
    system::{self, Params, SYSTEMS, Service, System},
};
use fencepost_nemesis::ProcId;

const WITHIN: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|w| !w.starts_with('-'))
        .collect();
    let chosen = |name: &str| {
        let systems: Vec<_> = words
            .iter()
            .filter(|w| *w != "local" && *w != "docker")
            .collect();
        systems.is_empty() || systems.iter().any(|w| *w == name)
    };
    match words.first().map(String::as_str) {
        Some("local") => {
            namespace::enter_run_namespace();
            all(HostKind::Local, chosen)
        }
        Some("docker") => all(HostKind::Docker, chosen),
        _ => each_host_in_its_own_process(&words),
    }
}

fn each_host_in_its_own_process(words: &[String]) -> ExitCode {
    let ok = |kind: &str| {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.arg(kind).args(words).status().unwrap().success()
    };
    match (ok("local"), ok("docker")) {
        (true, true) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn all(kind: HostKind, chosen: impl Fn(&str) -> bool) -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        for entry in SYSTEMS.iter().filter(|s| chosen(s.name)) {
            // The test is no `fencepost`: it cannot be the server itself.
            if entry.name == "raftlock" {
                continue;
            }
            let begun = Instant::now();
            match whole_life(kind, entry.name).await {
                Err(why) if why.starts_with("FAILED") => {
                    panic!("{} on {}: {why}", entry.name, kind.as_str())
                }
                Ok(what) => println!(
                    "{} on {}: {what}, {:.1?}",
                    entry.name,
                    kind.as_str(),
                    begun.elapsed()
                ),
                Err(why) => println!("{} on {}: skipped: {why}", entry.name, kind.as_str()),
            }
        }
    });
    ExitCode::SUCCESS
}

/// The reason to skip it is what this machine lacks; everything else is a panic.
async fn whole_life(kind: HostKind, name: &str) -> Result<String, String> {
    let dir = tempfile::tempdir().unwrap();
    let options = HostOptions {
        run_id: format!("{:08x}", rand::random::<u32>()),
        run_dir: dir.path().into(),
        ..HostOptions::default()
    };
    let system = system::open(name, Params::new()).unwrap();
    let host = host::open(kind, options).await.map_err(|e| e.to_string())?;
    let life = live(&host, system.as_ref(), kind).await;
    if life.as_ref().is_err_and(|e| e.starts_with("FAILED")) {
        keep_logs(dir);
    }
    host.stop().await.unwrap();
    life
}

/// Where a failure is looked into.
fn keep_logs(dir: tempfile::TempDir) {
    println!("logs: {}", dir.keep().display());
}

async fn live(host: &Arc<dyn Host>, system: &dyn System, kind: HostKind) -> Result<String, String> {
    let specs = system.nodes(host.site());
    if kind == HostKind::Docker {
        for spec in &specs {
            let tag = images::recipe_of(&spec.recipe).unwrap().tag();
            let engine = docker::engine().await.unwrap();
            if engine.inspect_image(&tag).await.is_err() {
                return Err(format!("no image {tag}"));
            }
        }
    }
    let nodes = match host::start_nodes(host.as_ref(), specs).await {
        Ok(nodes) => nodes,
        Err(HostError::Unavailable { reason, .. }) => return Err(reason),
        Err(e) => return Err(format!("FAILED: {e}")),
    };
    let service = system
        .join(host.site(), WITHIN)
        .await
        .map_err(|e| format!("FAILED: {e}"))?;
    assert!(
        service.version.starts_with(|c: char| c.is_ascii_digit()),
        "{:?}",
        service.version
    );
    let mut did = vec![service.version.clone()];
    clocks(&service, nodes.len(), &mut did).await;
    leadership(&service, &mut did).await;
    if !nodes.is_empty() {
        let begun = Instant::now();
        host.kill_node(0).await.unwrap();
        assert!(nodes[0].pids().is_empty());
        host.restart_node(0, DataFate::Kept).await.unwrap();
        answers(system, host).await;
        did.push(format!("node 0 back after {:.1?}", begun.elapsed()));
    }
    Ok(did.join(", "))
}

async fn clocks(service: &Service, nodes: usize, did: &mut Vec<String>) {
    let Some(clock) = &service.server_clock else {
        return;
    };
    for n in 0..nodes.min(3) {
        let read = clock.server_time(ProcId::Node(n as u32)).await.unwrap();
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap();
        assert!(
            now.abs_diff(read) < Duration::from_secs(2),
            "node {n}: {read:?} at {now:?}"
        );
    }
    did.push("clock read".into());
}

async fn leadership(service: &Service, did: &mut Vec<String>) {
    let Some(hint) = &service.leader_hint else {
        return;
    };
    let first = hint.leader().await.expect("a leader");
    did.push(format!("{first} leads"));
    if let Some(transfer) = &service.transfer_leader {
        transfer.transfer(None).await.unwrap();
        let next = another(hint.as_ref(), first).await;
        did.push(format!("handed to {next}"));
    }
    if let Some(promote) = &service.promote {
        let now = hint.leader().await.expect("a leader");
        let to = (0..3).map(ProcId::Node).find(|n| *n != now).unwrap();
        promote.promote(Some(to)).await.unwrap();
        assert_eq!(another(hint.as_ref(), now).await, to);
        did.push(format!("{to} promoted"));
    }
}

async fn another(hint: &dyn fencepost_nemesis::env::LeaderHint, than: ProcId) -> ProcId {
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        match hint.leader().await {
            Some(id) if id != than => return id,
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    panic!("{than} leads still");
}

/// The node's port accepts connections again.
async fn answers(system: &dyn System, host: &Arc<dyn Host>) {
    let addr = (host.site().node_addr(0), system.port(0).unwrap());
    let end = Instant::now() + WITHIN;
    while Instant::now() < end {
        if tokio::net::TcpStream::connect(addr).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{addr:?} does not answer after its restart");
}
