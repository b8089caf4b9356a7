//! Three replicas, each a process of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use raftlock_client::{Api, RequestBuilder, Security};
use serde_json::Value;

use super::{Server, eventually, free_addr, peers_argument};

pub fn get(url: String) -> RequestBuilder {
    let limit = Some(Duration::from_secs(1));
    Security::default().http(limit).unwrap().get(url)
}

pub fn post(url: String) -> RequestBuilder {
    Security::default().http(None).unwrap().post(url)
}

pub struct Replicas {
    pub nodes: Vec<Option<Server>>,
    listen: Vec<SocketAddr>,
    peers: String,
    dir: tempfile::TempDir,
}

impl Replicas {
    /// Three that are ready.
    pub async fn start(net: u8) -> Self {
        let mut replicas = Replicas {
            nodes: Vec::new(),
            listen: (0..3).map(|_| free_addr(net)).collect(),
            peers: peers_argument(net, 3),
            dir: tempfile::tempdir().unwrap(),
        };
        replicas.nodes = (0..3).map(|at| Some(replicas.node(at))).collect();
        for at in 0..3 {
            replicas.is_ready(at, true).await;
        }
        replicas
    }

    pub fn node(&self, at: usize) -> Server {
        let (listen, id) = (self.listen[at].to_string(), (at + 1).to_string());
        let data = self.data(at);
        let data = data.to_str().unwrap();
        Server::start(&[
            "--listen",
            &listen,
            "--data",
            data,
            "--id",
            &id,
            "--peers",
            &self.peers,
        ])
    }

    pub fn data(&self, at: usize) -> PathBuf {
        self.dir.path().join(at.to_string())
    }

    pub fn url(&self, at: usize) -> String {
        format!("http://{}", self.listen[at])
    }

    pub fn signal(&self, at: usize, name: &str) {
        self.nodes[at].as_ref().unwrap().signal(name);
    }

    pub async fn is_ready(&self, at: usize, ready: bool) {
        let what = format!("node {at} ready: {ready}");
        eventually(&what, async || {
            let answer = get(format!("{}/readyz", self.url(at))).send().await.ok()?;
            let code = if ready { 200 } else { 503 };
            (answer.status().as_u16() == code).then_some(())
        })
        .await;
    }

    pub async fn status(&self, at: usize) -> Value {
        let status = get(format!("{}/v1/status", self.url(at))).send();
        status.await.unwrap().json().await.unwrap()
    }

    /// Who leads the locks, as a node sees it.
    pub async fn leader(&self, at: usize) -> Option<usize> {
        let leader = &self.status(at).await["groups"][0]["leader"];
        leader.as_u64().map(|id| id as usize - 1)
    }

    pub async fn session(&self) -> String {
        let endpoints: Vec<String> = (0..3).map(|at| self.url(at)).collect();
        let api = Api::new(&endpoints, Duration::from_secs(2)).unwrap();
        let opened = async || api.create_session(60_000, "test", None).await.ok();
        eventually("a session", opened).await.session
    }
}
