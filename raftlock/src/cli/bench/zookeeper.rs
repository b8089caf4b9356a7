//! ZooKeeper's lock recipe, for comparison: three servers from Debian's packages, their data beside ours, forced to disk
//! as always.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::cluster::{Processes, free_addr};
use super::load::{Caller, Plan, Work};
use super::stream::CONNECTIONS;

const CLASSPATH: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar";

/// Three ZooKeeper servers.
pub struct ZooKeeper {
    _servers: Processes,
    clients: Vec<String>,
}

impl ZooKeeper {
    /// Starts them with their data under `dir`.
    pub async fn start(dir: &Path) -> anyhow::Result<Self> {
        let addrs: Vec<[String; 3]> = (0..3)
            .map(|_| Ok([free_addr()?, free_addr()?, free_addr()?]))
            .collect::<anyhow::Result<_>>()?;
        let port = |addr: &str| addr.rsplit(':').next().unwrap_or_default().to_owned();
        let member = |(i, addr): (usize, &[String; 3])| {
            format!("server.{}={}:{}\n", i + 1, addr[1], port(&addr[2]))
        };
        let ensemble: String = addrs.iter().enumerate().map(member).collect();
        let mut servers = Processes::default();
        for (i, addr) in addrs.iter().enumerate() {
            let data = dir.join(format!("zookeeper-{i}"));
            std::fs::create_dir_all(&data)?;
            let conf = format!(
                "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={}\nclientPort={}\n\
                 clientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n{ensemble}",
                data.display(),
                port(&addr[0]),
            );
            std::fs::write(data.join("zoo.cfg"), conf)?;
            std::fs::write(data.join("myid"), (i + 1).to_string())?;
            let mut command = Command::new("java");
            command
                .args(["-Xmx512m", "-Dzookeeper.jmx.log4j.disable=true"])
                .args([
                    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
                    "-cp",
                    CLASSPATH,
                ])
                .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
                .arg(data.join("zoo.cfg"))
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            servers.spawn(&mut command).context("is java installed?")?;
        }
        let clients = addrs.iter().map(|addr| addr[0].clone()).collect();
        let zookeeper = ZooKeeper {
            _servers: servers,
            clients,
        };
        for i in 0..3 {
            zookeeper
                .connect(i)
                .await
                .context("are Debian's zookeeper and default-jre-headless installed?")?;
        }
        Ok(zookeeper)
    }

    async fn connect(&self, number: usize) -> anyhow::Result<Client> {
        let addr = &self.clients[number % self.clients.len()];
        for _ in 0..60 {
            let connecting = Client::connector()
                .with_session_timeout(Duration::from_secs(20))
                .connect(addr);
            if let Ok(Ok(client)) = tokio::time::timeout(Duration::from_secs(2), connecting).await {
                return Ok(client);
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        anyhow::bail!("ZooKeeper at {addr} does not answer")
    }

    /// Clients spread over the servers, on as many connections as ours; a contended lock is for sessions of their own.
    pub async fn callers(
        &self,
        clients: usize,
        plan: Plan,
    ) -> anyhow::Result<Vec<ZooKeeperCaller>> {
        let work = plan.work;
        let sessions = clients
            .div_ceil(plan.connections.per_session(work))
            .max(plan.connections.among(clients, 3 * CONNECTIONS));
        let mut connected = Vec::new();
        for number in 0..sessions {
            connected.push(self.connect(number).await?);
        }
        let container = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let mut out = Vec::new();
        for number in 0..clients {
            let dir = match work {
                Work::Contended => "/bench-one".to_owned(),
                Work::Mix | Work::Cycles => format!("/bench-{number}"),
            };
            match connected[0].create(&dir, &[], &container).await {
                Ok(_) | Err(Error::NodeExists) => {}
                Err(error) => return Err(error.into()),
            }
            out.push(ZooKeeperCaller {
                client: connected[number % sessions].clone(),
                dir,
                contended: work == Work::Contended,
                node: String::new(),
            });
        }
        // A session sees the nodes that another made once it has caught up.
        for client in &connected {
            client.sync("/").await?;
        }
        Ok(out)
    }
}

/// One client.
pub struct ZooKeeperCaller {
    client: Client,
    dir: String,
    contended: bool,
    node: String,
}

impl ZooKeeperCaller {
    /// Waits for the node before ours to go, as the published recipe does.
    async fn in_turn(&self) -> anyhow::Result<()> {
        loop {
            let mut children = self.client.list_children(&self.dir).await?;
            children.sort_unstable();
            let own = self.node.rsplit('/').next().unwrap_or_default();
            let place = children.iter().position(|child| child == own);
            let Some(before) = place.context("the own node is gone")?.checked_sub(1) else {
                return Ok(());
            };
            let path = format!("{}/{}", self.dir, children[before]);
            if let (Some(_), watcher) = self.client.check_and_watch_stat(&path).await? {
                watcher.changed().await;
            }
        }
    }
}

impl Caller for ZooKeeperCaller {
    /// Uncontended, the create alone: the recipe's look at the children is left out in ZooKeeper's favour.
    async fn acquire(&mut self) -> anyhow::Result<()> {
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let path = format!("{}/n-", self.dir);
        let (_, sequence) = self.client.create(&path, &[], &options).await?;
        self.node = format!("{path}{sequence}");
        if self.contended {
            self.in_turn().await
        } else {
            Ok(())
        }
    }

    async fn release(&mut self) -> anyhow::Result<()> {
        self.client.delete(&self.node, None).await?;
        Ok(())
    }
}
