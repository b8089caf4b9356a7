//! Replicas as processes of their own, for benchmarks.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;

/// A cluster on this machine. Its processes end with it.
pub struct Cluster {
    children: Vec<Child>,
    /// Base URLs of the nodes.
    pub urls: Vec<String>,
    _data: tempfile::TempDir,
}

impl Cluster {
    /// Starts `replicas` of this very program with `groups` groups, their data under `dir`.
    pub async fn start(replicas: u64, groups: u32, dir: Option<&Path>) -> anyhow::Result<Self> {
        let data = match dir {
            Some(dir) => tempfile::tempdir_in(dir),
            None => tempfile::tempdir(),
        }
        .context("no directory for the replicas' data")?;
        let program = std::env::current_exe()?;
        let listen: Vec<String> = (0..replicas)
            .map(|_| free_addr())
            .collect::<Result<_, _>>()?;
        let peers: Vec<String> = (1..=replicas)
            .map(|id| Ok(format!("{id}={}", free_addr()?)))
            .collect::<anyhow::Result<_>>()?;
        let mut cluster = Cluster {
            children: Vec::new(),
            urls: Vec::new(),
            _data: data,
        };
        for (id, addr) in (1..=replicas).zip(&listen) {
            let child = Command::new(&program)
                .args([
                    "serve",
                    "--listen",
                    addr,
                    "--id",
                    &id.to_string(),
                    "--groups",
                    &groups.to_string(),
                ])
                .args(["--peers", &peers.join(",")])
                .arg("--data")
                .arg(cluster._data.path().join(id.to_string()))
                .env("RUST_LOG", "warn")
                .stdout(Stdio::null())
                .spawn()
                .context("cannot start a replica")?;
            cluster.children.push(child);
            cluster.urls.push(format!("http://{addr}"));
        }
        cluster.leaders(groups).await?;
        Ok(cluster)
    }

    /// Waits for a leader in every group; their base URLs by group.
    pub async fn leaders(&self, groups: u32) -> anyhow::Result<Vec<String>> {
        let until = Instant::now() + Duration::from_secs(20);
        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(1))
            .build()?;
        while Instant::now() < until {
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
                if found.len() == groups as usize {
                    return Ok(found);
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("the replicas elected no leaders within 20 s")
    }

    /// CPU time of all replicas so far and their largest resident size, from /proc.
    pub fn usage(&self) -> (Duration, u64) {
        let (mut ticks, mut resident) = (0, 0);
        for child in &self.children {
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
            ticks += field(11) + field(12);
            resident = resident.max(field(21) * 4096);
        }
        (Duration::from_millis(ticks * 10), resident)
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

fn free_addr() -> anyhow::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}
