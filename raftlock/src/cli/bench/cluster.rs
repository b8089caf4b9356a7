//! Replicas as processes of their own, for benchmarks.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use raftlock_client::Security;
use serde_json::Value;

/// Processes that end with this.
#[derive(Default)]
pub struct Processes(Vec<Child>);

impl Processes {
    /// Starts one more.
    pub fn spawn(&mut self, command: &mut Command) -> anyhow::Result<()> {
        let program = command.get_program().to_owned();
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        self.0.push(child);
        Ok(())
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// How a cluster is started.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Replicas.
    pub replicas: u64,
    /// Groups.
    pub groups: u32,
    /// Further arguments of each replica.
    pub args: Vec<String>,
}

/// A cluster on this machine. Its processes end with it.
pub struct Cluster {
    children: Vec<Child>,
    commands: Vec<Vec<std::ffi::OsString>>,
    groups: u32,
    /// Base URLs of the nodes.
    pub urls: Vec<String>,
}

impl Cluster {
    /// Starts replicas of this very program, their data under `dir`.
    pub async fn start(setup: &Setup, dir: &Path) -> anyhow::Result<Self> {
        let ids = 1..=setup.replicas;
        let listen: Vec<String> = ids.clone().map(|_| free_addr()).collect::<Result<_, _>>()?;
        let peers: Vec<String> = ids
            .clone()
            .map(|id| Ok(format!("{id}={}", free_addr()?)))
            .collect::<anyhow::Result<_>>()?;
        let mut cluster = Cluster {
            children: Vec::new(),
            commands: Vec::new(),
            groups: setup.groups,
            urls: listen.iter().map(|addr| format!("http://{addr}")).collect(),
        };
        for (id, addr) in ids.zip(&listen) {
            let mut args: Vec<std::ffi::OsString> =
                ["serve", "--listen", addr].map(Into::into).into();
            args.extend(["--id".into(), id.to_string().into()]);
            args.extend(["--groups".into(), setup.groups.to_string().into()]);
            args.extend(["--peers".into(), peers.join(",").into()]);
            args.extend(["--data".into(), dir.join(format!("raftlock-{id}")).into()]);
            args.push("--min-ttl-ms=100".into());
            args.extend(setup.args.iter().map(Into::into));
            cluster.children.push(spawn(&args)?);
            cluster.commands.push(args);
        }
        cluster.leaders().await?;
        Ok(cluster)
    }

    /// Kills the replica at `index` with SIGKILL.
    pub fn kill(&mut self, index: usize) -> anyhow::Result<()> {
        self.children[index].kill()?;
        self.children[index].wait()?;
        Ok(())
    }

    /// Kills all.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        (0..self.children.len()).try_for_each(|index| self.kill(index))
    }

    /// Starts a killed replica again.
    pub fn restart(&mut self, index: usize) -> anyhow::Result<()> {
        self.children[index] = spawn(&self.commands[index])?;
        Ok(())
    }

    /// Waits until every node is ready; the base URLs of the groups' leaders.
    pub async fn leaders(&self) -> anyhow::Result<Vec<String>> {
        let until = Instant::now() + Duration::from_secs(20);
        let http = Security::default().http(Some(Duration::from_secs(1)))?;
        while Instant::now() < until {
            let mut ready = true;
            for url in &self.urls {
                let answer = http.get(format!("{url}/readyz")).send().await;
                ready &= answer.is_ok_and(|answer| answer.status().is_success());
            }
            if !ready {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            for url in &self.urls {
                let Ok(response) = http.get(format!("{url}/v1/status")).send().await else {
                    continue;
                };
                let Ok(status) = response.json::<Value>().await else {
                    continue;
                };
                let found: Vec<String> = status["groups"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|group| group["leader_url"].as_str().map(str::to_owned))
                    .collect();
                if found.len() == self.groups as usize {
                    return Ok(found);
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("the replicas elected no leaders within 20 s")
    }

    /// CPU time of all replicas so far and their largest resident size, from /proc.
    pub fn usage(&self) -> (Duration, u64) {
        let each = self.usage_each();
        let cpu = each.iter().map(|(cpu, _)| *cpu).sum();
        (cpu, each.iter().map(|(_, rss)| *rss).max().unwrap_or(0))
    }

    /// The same of each replica.
    pub fn usage_each(&self) -> Vec<(Duration, u64)> {
        let one = |child: &Child| {
            let stat =
                std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
            let fields: Vec<&str> = stat
                .rsplit(')')
                .next()
                .unwrap_or("")
                .split_whitespace()
                .collect();
            let field = |at: usize| {
                fields
                    .get(at)
                    .and_then(|text| text.parse::<u64>().ok())
                    .unwrap_or(0)
            };
            (
                Duration::from_millis((field(11) + field(12)) * 10),
                field(21) * 4096,
            )
        };
        self.children.iter().map(one).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn spawn(args: &[std::ffi::OsString]) -> anyhow::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(args)
        .env("RUST_LOG", "error")
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start a replica")
}

/// A loopback address that was free a moment ago.
pub fn free_addr() -> anyhow::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}
