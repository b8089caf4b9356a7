//! One Redis that syncs its append-only file before every answer, for comparison: the usual lock, `SET NX PX` and a
//! script that deletes the key if it is one's own. It has no queue, so that nothing contended is compared.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use redis::Script;
use redis::aio::MultiplexedConnection;

use super::cluster::{Processes, free_addr};
use super::load::{Caller, Plan, Work};
use super::stream::{CONNECTIONS, lock_name};

const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// One Redis server.
pub struct Redis {
    _server: Processes,
    /// What it says it is.
    pub version: String,
    client: redis::Client,
}

impl Redis {
    /// Starts it with its data under `dir`.
    pub async fn start(dir: &Path) -> anyhow::Result<Self> {
        let addr = free_addr()?;
        let (host, port) = addr.rsplit_once(':').context("an address without a port")?;
        let data = dir.join("redis");
        std::fs::create_dir_all(&data)?;
        let mut server = Processes::default();
        let mut command = Command::new("redis-server");
        command
            .args(["--bind", host, "--port", port, "--save", "", "--dir"])
            .arg(&data)
            .args(["--appendonly", "yes", "--appendfsync", "always"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        server
            .spawn(&mut command)
            .context("is redis-server installed?")?;
        let client = redis::Client::open(format!("redis://{addr}/"))?;
        let version = version(&client).await?;
        Ok(Redis {
            _server: server,
            version,
            client,
        })
    }

    /// Clients on as many connections as ours.
    pub async fn callers(&self, clients: usize, plan: Plan) -> anyhow::Result<Vec<RedisCaller>> {
        let mut connections = Vec::new();
        for _ in 0..plan.connections.among(clients, 3 * CONNECTIONS) {
            connections.push(self.client.get_multiplexed_async_connection().await?);
        }
        let caller = |number: usize| RedisCaller {
            connection: connections[number % connections.len()].clone(),
            release: Script::new(RELEASE),
            lock: lock_name(Work::Cycles, number),
            owner: format!("client-{number}"),
        };
        Ok((0..clients).map(caller).collect())
    }
}

async fn version(client: &redis::Client) -> anyhow::Result<String> {
    for _ in 0..100 {
        if let Ok(mut connection) = client.get_multiplexed_async_connection().await {
            let info: String = redis::cmd("INFO")
                .arg("server")
                .query_async(&mut connection)
                .await?;
            let version = info
                .lines()
                .find_map(|line| line.strip_prefix("redis_version:"));
            return Ok(version.unwrap_or("unknown").trim().to_owned());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("redis-server does not answer within 5 s")
}

/// One client.
pub struct RedisCaller {
    connection: MultiplexedConnection,
    release: Script,
    lock: String,
    owner: String,
}

impl Caller for RedisCaller {
    async fn acquire(&mut self) -> anyhow::Result<()> {
        let taken: Option<String> = redis::cmd("SET")
            .arg(&self.lock)
            .arg(&self.owner)
            .arg(&["NX", "PX", "60000"])
            .query_async(&mut self.connection)
            .await?;
        ensure!(taken.is_some(), "{} is held by another", self.lock);
        Ok(())
    }

    async fn release(&mut self) -> anyhow::Result<()> {
        let freed: i64 = self
            .release
            .key(&self.lock)
            .arg(&self.owner)
            .invoke_async(&mut self.connection)
            .await?;
        ensure!(freed == 1, "{} was held by another", self.lock);
        Ok(())
    }
}
