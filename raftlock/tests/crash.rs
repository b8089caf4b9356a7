//! Replicas as processes, killed with SIGKILL under load: no acknowledged grant is lost, no token goes back.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::HashMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{free_addr, peers_argument};
use raftlock_client::{AcquireOptions, Api, Outcome, Retry};

struct Replicas {
    children: Vec<Option<Child>>,
    listen: Vec<String>,
    peers: String,
    data: tempfile::TempDir,
}

const NET: u8 = 21;

impl Replicas {
    fn start(count: usize) -> Self {
        let listen: Vec<String> = (0..count).map(|_| free_addr(NET).to_string()).collect();
        let data = tempfile::tempdir().unwrap();
        let mut replicas = Replicas {
            children: Vec::new(),
            listen,
            peers: peers_argument(NET, count as u64),
            data,
        };
        for at in 0..count {
            let child = replicas.spawn(at);
            replicas.children.push(Some(child));
        }
        replicas
    }

    fn spawn(&self, at: usize) -> Child {
        let data: &Path = self.data.path();
        Command::new(env!("CARGO_BIN_EXE_raftlock"))
            .args([
                "serve",
                "--min-ttl-ms=100",
                "--listen",
                &self.listen[at],
                "--id",
                &(at + 1).to_string(),
                "--peers",
                &self.peers,
            ])
            .arg("--data")
            .arg(data.join(at.to_string()))
            .env("RUST_LOG", "error")
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn kill_all(&mut self) {
        for child in self.children.iter_mut().flatten() {
            let _ = child.kill();
        }
        for child in self.children.iter_mut().flatten() {
            let _ = child.wait();
        }
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        self.kill_all();
    }
}

/// Highest acknowledged token by lock, and the grants acknowledged and not given back.
#[derive(Default)]
struct Book {
    highest: HashMap<String, u64>,
    held: HashMap<String, (String, u64)>,
    grants: u64,
}

/// One client: takes and gives back its lock as long as the test runs, and writes down what was acknowledged.
async fn client(api: Api, name: String, book: Arc<Mutex<Book>>, over: Arc<AtomicBool>) {
    let mut session = None;
    let mut request = 1;
    let over = || over.load(Ordering::Relaxed);
    while !over() {
        let Some(id) = session.clone() else {
            session = api
                .create_session(60_000, &name, Some(&name))
                .await
                .result()
                .ok()
                .map(|info| info.session);
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        request += 1;
        let options = AcquireOptions {
            request_id: Some(request),
            ..AcquireOptions::default()
        };
        let grant = loop {
            match api.acquire(&name, &id, &options).await {
                Outcome::Ok(grant) => break Some(grant),
                Outcome::DefiniteFail(error) if error.retry == Retry::NewSession => break None,
                Outcome::DefiniteFail(error) if error.code == "busy" => {
                    panic!("{name} is held by nobody else")
                }
                Outcome::DefiniteFail(_) | Outcome::Unknown(_) if over() => return,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        let Some(grant) = grant else {
            panic!("{name}: an acknowledged session of 60 s is gone")
        };
        {
            let mut book = book.lock().unwrap();
            let highest = book.highest.insert(name.clone(), grant.token).unwrap_or(0);
            assert!(
                grant.token > highest,
                "{name}: token {} after {highest}",
                grant.token
            );
            book.held.insert(name.clone(), (id.clone(), grant.token));
            book.grants += 1;
        }
        request += 1;
        book.lock().unwrap().held.remove(&name);
        loop {
            match api.release(&name, &id, grant.token, Some(request)).await {
                Outcome::Ok(_) => break,
                Outcome::DefiniteFail(error) if error.code == "not_held" => {
                    panic!("{name}: an acknowledged grant is gone")
                }
                _ if over() => return,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

async fn kill_all_rounds(rounds: u32) {
    let mut replicas = Replicas::start(3);
    let book = Arc::new(Mutex::new(Book::default()));
    let over = Arc::new(AtomicBool::new(false));
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..6 {
        let api = Api::new(&replicas.listen, Duration::from_secs(1)).unwrap();
        clients.spawn(client(
            api,
            format!("crash/{number}"),
            Arc::clone(&book),
            Arc::clone(&over),
        ));
    }
    for _ in 0..rounds {
        tokio::time::sleep(Duration::from_millis(rand::random_range(1500..2500))).await;
        replicas.kill_all();
        for at in 0..3 {
            replicas.children[at] = Some(replicas.spawn(at));
        }
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    over.store(true, Ordering::Relaxed);
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
    let grants = book.lock().unwrap().grants;
    println!(
        "{rounds} kills of all replicas, {grants} grants acknowledged, none lost, no token went back"
    );
    assert!(grants > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_nine_of_all_replicas_loses_nothing() {
    kill_all_rounds(2).await;
}

/// The bar of 100 kills: `cargo test --release -p raftlock --test crash -- --ignored --nocapture`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes five minutes"]
async fn kill_nine_of_all_replicas_a_hundred_times() {
    kill_all_rounds(100).await;
}
