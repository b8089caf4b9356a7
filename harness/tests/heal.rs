//! A controller is killed with SIGKILL in the middle of a run, while a node and a worker are stopped:
//! after `heal` nothing of the run is left, and what belongs to others is.
//! Not libtest: the program starts itself again as the controller.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use fencepost::{
    heal,
    host::{
        self, HostKind, HostOptions, ProcessSpec, UnitId, docker, namespace, proc, register,
        spawn::{RUN_VAR, find_program},
    },
    images, system,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).map(String::as_str) == Some("controller") {
        return controller(&args[2], &args[3]);
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if find_program("redis-server").is_some() {
        runtime.block_on(killed_in_the_middle("local"));
    } else {
        println!("local skipped: no redis-server");
    }
    let root = nix::unistd::geteuid().is_root();
    if root && runtime.block_on(has_image()) {
        runtime.block_on(killed_in_the_middle("docker"));
    } else {
        println!("docker skipped: no engine, no image of Redis, or not root");
    }
    println!("ok");
}

async fn has_image() -> bool {
    let tag = images::recipe_of("redis").unwrap().tag();
    match docker::engine().await {
        Ok(engine) => engine.inspect_image(&tag).await.is_ok(),
        Err(_) => false,
    }
}

/// A run that stands still until it is killed. Prints the pids of its node and worker.
fn controller(kind: &str, run_id: &str) {
    let kind = match kind {
        "docker" => HostKind::Docker,
        _ => {
            namespace::enter_run_namespace();
            HostKind::Local
        }
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let options = HostOptions {
            run_id: run_id.into(),
            run_dir: std::env::temp_dir().join(format!("heal-test-{run_id}")),
            ..HostOptions::default()
        };
        let host = host::open(kind, options).await.unwrap();
        let redis = system::open("redis", system::Params::new()).unwrap();
        let node = redis.nodes(host.site()).remove(0);
        let node = host.start_node(0, node).await.unwrap();
        redis
            .join(host.site(), Duration::from_secs(20))
            .await
            .unwrap();
        let worker = ProcessSpec {
            id: UnitId::Worker(0),
            program: "/bin/sh".into(),
            // Its child has a session of its own: only the mark in its environment betrays it.
            args: vec!["-c".into(), "setsid sleep 1000 & exec sleep 1000".into()],
            env: BTreeMap::new(),
        };
        let worker = host.start_process(worker).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        println!("{} {}", node.pid().unwrap(), worker.unit.pid().unwrap());
        std::io::stdout().flush().unwrap();
        std::future::pending::<()>().await;
    });
}

async fn killed_in_the_middle(kind: &str) {
    let run_id = format!("heal{}{kind}", std::process::id());
    let mut run = start(kind, &run_id);
    let mut line = String::new();
    BufReader::new(run.0.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let pids: Vec<i32> = line
        .split_whitespace()
        .map(|p| p.parse().unwrap())
        .collect();
    assert_eq!(pids.len(), 2, "the controller said {line:?}");
    // Redis writes its title over its environment: it is known by its pid alone.
    assert!(proc::with_env(RUN_VAR, &run_id).len() >= 2);
    for pid in &pids {
        kill(Pid::from_raw(*pid), Signal::SIGSTOP).unwrap();
    }
    let foreign = Foreign::make(kind, &run_id).await;

    // While the controller lives, its run is nobody's to clean.
    assert!(heal::heal().await.unwrap().alive.contains(&run_id));
    assert!(proc::alive(pids[0]) && proc::alive(pids[1]));

    drop(run);
    let late = late_container(kind, &run_id);
    let (healed, ()) = tokio::join!(heal::heal(), late);
    let healed = healed.unwrap();
    println!("{kind}: {healed:?}");
    assert!(healed.runs.contains(&run_id), "{healed:?}");
    for pid in pids {
        assert!(!proc::alive(pid));
    }
    assert!(proc::with_env(RUN_VAR, &run_id).is_empty());
    let dir = register::directory().unwrap();
    assert!(!dir.join(format!("{run_id}.jsonl")).exists());
    assert!(
        !std::env::temp_dir()
            .join(format!("fencepost-run-{run_id}"))
            .exists()
    );
    foreign.survives(&run_id).await;
    std::fs::remove_dir_all(std::env::temp_dir().join(format!("heal-test-{run_id}"))).unwrap();
}

/// Killed when a test fails.
struct Controller(Child);

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(kind: &str, run_id: &str) -> Controller {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["controller", kind, run_id])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    Controller(child)
}

/// Things like ours that are not ours, and one table that is the run's.
struct Foreign {
    table: Option<String>,
    container: Option<String>,
}

impl Foreign {
    async fn make(kind: &str, run_id: &str) -> Self {
        let table = format!("foreign_{run_id}");
        let table = nft(&["add", "table", "ip", &table]).then_some(table);
        if table.is_some() {
            assert!(nft(&[
                "add",
                "table",
                "ip",
                &format!("fencepost_{run_id}_f1")
            ]));
        }
        let container = match kind {
            "docker" => Some(foreign_container(run_id).await),
            _ => None,
        };
        Self { table, container }
    }

    async fn survives(&self, run_id: &str) {
        if let Some(table) = &self.table {
            assert!(
                nft(&["list", "table", "ip", table]),
                "the foreign table is gone"
            );
            assert!(!nft(&[
                "list",
                "table",
                "ip",
                &format!("fencepost_{run_id}_f1")
            ]));
        }
        let Some(container) = &self.container else {
            return;
        };
        let engine = docker::engine().await.unwrap();
        let label = format!("{}={run_id}", docker::LABEL);
        let filters = std::collections::HashMap::from([("label", vec![label.as_str()])]);
        let options = bollard::query_parameters::ListContainersOptionsBuilder::default()
            .all(true)
            .filters(&filters)
            .build();
        assert!(
            engine
                .list_containers(Some(options))
                .await
                .unwrap()
                .is_empty()
        );
        let links = Path::new("/sys/class/net").read_dir().unwrap();
        let links = links.filter(|l| {
            l.as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with("fp")
        });
        println!("interfaces called fp…: {}", links.count());
        let none = None::<bollard::query_parameters::InspectContainerOptions>;
        let found = engine.inspect_container(container, none).await.unwrap();
        assert_eq!(
            found.state.unwrap().running,
            Some(true),
            "the foreign container is gone"
        );
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Some(table) = &self.table {
            nft(&["delete", "table", "ip", table]);
        }
        if let Some(container) = &self.container {
            let _ = Command::new("docker")
                .args(["rm", "-f", container])
                .output();
        }
    }
}

/// A container with a label of our kind, of a run that is not in the register.
async fn foreign_container(run_id: &str) -> String {
    let engine = docker::engine().await.unwrap();
    let image = images::recipe_of("redis").unwrap().tag();
    let body = bollard::models::ContainerCreateBody {
        image: Some(image),
        cmd: Some(vec!["sleep".into(), "60".into()]),
        labels: Some([(docker::LABEL.to_string(), format!("other-{run_id}"))].into()),
        ..Default::default()
    };
    let id = engine.create_container(None, body).await.unwrap().id;
    let none = None::<bollard::query_parameters::StartContainerOptions>;
    engine.start_container(&id, none).await.unwrap();
    id
}

/// What a controller had asked the engine for when it died, made only once the cleaning has begun.
async fn late_container(kind: &str, run_id: &str) {
    if kind != "docker" {
        return;
    }
    tokio::time::sleep(Duration::from_millis(700)).await;
    let engine = docker::engine().await.unwrap();
    let body = bollard::models::ContainerCreateBody {
        image: Some(images::recipe_of("redis").unwrap().tag()),
        labels: Some([(docker::LABEL.to_string(), run_id.to_string())].into()),
        ..Default::default()
    };
    engine.create_container(None, body).await.unwrap();
}

fn nft(args: &[&str]) -> bool {
    let Some(nft) = find_program("nft") else {
        return false;
    };
    let done = Command::new(nft).args(args).output();
    done.is_ok_and(|o| o.status.success())
}
