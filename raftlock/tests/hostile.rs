//! Clients and strangers that take all they can: memory stays bounded, and nobody else's lock is affected.
#![allow(clippy::unwrap_used)]

mod common;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use common::{Server, certificates, eventually, free_addr, hold, wait};
use raftlock_client::{Client, ClientOptions, Guard, Mode, Outcome, Security, Stream};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const UPGRADE: &str = "GET /v1/stream HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                       sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";

async fn get(url: &str) -> String {
    let http = Security::default()
        .http(Some(Duration::from_secs(10)))
        .unwrap();
    http.get(url).send().await.unwrap().text().await.unwrap()
}

/// The sum of a metric over its labels.
async fn metric(server: &Server, name: &str) -> u64 {
    let text = get(&format!("{}/metrics", server.url())).await;
    let of = text
        .lines()
        .filter(|line| line.starts_with(name) && !line.starts_with('#'));
    of.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64)
        .sum()
}

/// A guard whose session lives for six seconds if it is not kept alive.
async fn victim(addrs: &[String], name: &str) -> (Client, Guard) {
    let options = ClientOptions {
        ttl: Duration::from_secs(6),
        ..ClientOptions::default()
    };
    let client = Client::new(addrs, options).unwrap();
    let guard = client
        .lock(name, Mode::Exclusive, Duration::from_secs(10))
        .await
        .unwrap();
    (client, guard)
}

async fn assert_still_held(client: &Client, guard: &Guard, name: &str) {
    assert!(guard.is_valid(), "its holder lost {name}");
    let current = client.api().check(name, guard.fence()).await;
    assert!(current.result().unwrap(), "{name} changed hands");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_sessions_stays_within_its_namespace() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[namespaces.noisy]\nmax_sessions = 200\n[namespaces.calm]\n";
    let mut server = Server::configured(dir.path(), text);
    let (client, guard) = victim(&[server.addr.to_string()], "calm/a").await;
    let before = server.resident();
    let flood = |_| async {
        let (stream, _events) = Stream::connect(&server.url()).await.unwrap();
        let label = "l".repeat(128);
        let (mut opened, mut refused) = (0, 0);
        for _ in 0..10 {
            let asked = (0..500).map(|_| stream.create_session(60_000, &label, "noisy/a"));
            for outcome in futures_util::future::join_all(asked).await {
                match outcome {
                    Outcome::Ok(_) => opened += 1,
                    Outcome::DefiniteFail(error) => {
                        assert_eq!(error.code, "too_many_sessions");
                        assert!(error.retry_after_ms.is_some());
                        refused += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        (opened, refused)
    };
    let all = futures_util::future::join_all((0..4).map(flood)).await;
    let (opened, refused) = all
        .iter()
        .fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1));
    assert_eq!((opened, refused), (200, 20_000 - 200));
    assert_eq!(
        metric(&server, "raftlock_sessions{").await,
        201,
        "and the one of the other"
    );
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 48 << 10, "{grown} KiB more than before");
    assert_still_held(&client, &guard, "calm/a").await;
    server.assert_sound();
}

/// A client's text frame.
fn frame(text: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x81, 0x80 | 127];
    frame.extend((text.len() as u64).to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(text);
    frame
}

/// Opens a stream and writes messages of this text to it for as long as it can; what comes back is left unread.
async fn never_reads(addr: SocketAddr, text: &str) -> (OwnedReadHalf, JoinHandle<()>) {
    let mut socket = TcpStream::connect(addr).await.unwrap();
    socket.write_all(UPGRADE.as_bytes()).await.unwrap();
    let (unread, mut writer) = socket.into_split();
    let frame = frame(text.as_bytes());
    let writing = tokio::spawn(async move { while writer.write_all(&frame).await.is_ok() {} });
    (unread, writing)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_never_reads_a_stream_is_dropped_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::configured(dir.path(), "slow_reader_ms = 3000\n");
    let (client, guard) = victim(&[server.addr.to_string()], "a").await;
    let before = server.resident();
    // A line of one letter is answered by an error of a hundred: a message of them asks for some 20 MB.
    let (errors, mut shows) = ("x\n".repeat(100_000), String::new());
    for id in 0..400 {
        let _ = writeln!(
            shows,
            r#"{{"id":{id},"op":"show","lock":"{}"}}"#,
            "n".repeat(500)
        );
    }
    let texts = [&errors, &shows].repeat(6);
    let slow = texts.iter().map(|text| never_reads(server.addr, text));
    let slow = futures_util::future::join_all(slow).await;
    let mut most = 0;
    let dropped = async || {
        most = server.resident().max(most);
        let dropped = metric(&server, "raftlock_slow_readers_total ").await;
        (dropped == slow.len() as u64).then_some(())
    };
    eventually("all are dropped", dropped).await;
    let grown = most.saturating_sub(before);
    assert!(grown < 64 << 10, "{grown} KiB more than before");
    for (mut unread, writing) in slow {
        writing.abort();
        let mut rest = Vec::new();
        let ended = timeout(Duration::from_secs(10), unread.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "its stream is still open");
        let told = rest.windows(12).any(|part| part == b"slow_reader:");
        assert!(
            told,
            "{}",
            String::from_utf8_lossy(&rest[rest.len().saturating_sub(200)..])
        );
    }
    assert_still_held(&client, &guard, "a").await;
    server.assert_sound();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_leave_files_for_the_log_and_silent_ones_keep_nobody_out() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let args = ["--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()];
    let mut server = Server::start_limited(128, &args);
    let (stream, _events) = Stream::connect(&server.url()).await.unwrap();
    let (session, _) = hold(&stream, "a", 60_000).await;
    let before = server.resident();
    let mut flood = Vec::new();
    let begun = [
        "",
        "GET /healthz HT",
        "POST /v1/sessions HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{",
    ];
    for number in 0..400 {
        let mut one = TcpStream::connect(server.addr).await.unwrap();
        let _ = one.write_all(begun[number % 3].as_bytes()).await;
        flood.push(one);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", server.pid()))
        .unwrap()
        .count();
    assert!(descriptors < 110, "{descriptors} of 128 files are open");
    for _ in 0..20 {
        let grant = stream
            .acquire("b", &session, &wait(0))
            .await
            .result()
            .unwrap();
        stream
            .release("b", &session, grant.token, None)
            .await
            .result()
            .unwrap();
    }
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KiB more than before");
    // Whoever asks gets in, though those who asked for nothing have taken all places.
    for _ in 0..50 {
        Stream::connect(&server.url()).await.unwrap();
    }
    drop(flood);
    server.assert_sound();
}

struct Replicas {
    nodes: Vec<Server>,
    peers: Vec<SocketAddr>,
    dir: tempfile::TempDir,
}

impl Replicas {
    fn start(net: u8, tls: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let peers: Vec<SocketAddr> = (0..3).map(|_| free_addr(net)).collect();
        let mut text = "[peers]\n".to_owned();
        for (id, addr) in (1..).zip(&peers) {
            let _ = writeln!(text, "{id} = \"{addr}\"");
        }
        if tls {
            let host = peers[0].ip().to_string();
            let (ca, cert, key) = certificates(dir.path(), "peers", &host);
            let _ = writeln!(
                text,
                "[peer_tls]\nca = {ca:?}\ncert = {cert:?}\nkey = {key:?}"
            );
        }
        std::fs::write(dir.path().join("node.toml"), text).unwrap();
        let listen: Vec<SocketAddr> = (0..3).map(|_| free_addr(net)).collect();
        let node = |at: usize| Self::node(dir.path(), at, &listen[at].to_string());
        let nodes = (0..3).map(node).collect();
        Replicas { nodes, peers, dir }
    }

    fn node(dir: &Path, at: usize, listen: &str) -> Server {
        let (config, data) = (dir.join("node.toml"), dir.join(at.to_string()));
        let id = (at + 1).to_string();
        let (config, data) = (config.to_str().unwrap(), data.to_str().unwrap());
        Server::start(&[
            "--config", config, "--listen", listen, "--data", data, "--id", &id,
        ])
    }

    async fn ready(&self, at: usize) {
        let url = format!("{}/readyz", self.nodes[at].url());
        let ready = async || get(&url).await.contains(r#""ready":true"#).then_some(());
        eventually("a leader is known", ready).await;
    }
}

/// Rubbish for a peer port: noise, frames without end, the beginning of a TLS handshake.
fn rubbish(rng: &mut SmallRng) -> Vec<u8> {
    let noise = |rng: &mut SmallRng, most| {
        (0..rng.random_range(1..most))
            .map(|_| rng.random())
            .collect()
    };
    match rng.random_range(0..5) {
        0 => noise(rng, 64 << 10),
        1 => [vec![0xFF; 4], noise(rng, 4096)].concat(),
        // A frame of 4 KiB, the most that a stranger's may have.
        2 => [vec![0, 0x10, 0, 0], noise(rng, 8192)].concat(),
        3 => vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3],
        _ => Vec::new(),
    }
}

async fn garbage_on_the_peer_port(net: u8, tls: bool) {
    let mut replicas = Replicas::start(net, tls);
    for at in 0..3 {
        replicas.ready(at).await;
    }
    let addrs: Vec<String> = replicas
        .nodes
        .iter()
        .map(|node| node.addr.to_string())
        .collect();
    let (client, guard) = victim(&addrs, "a").await;
    let before: Vec<u64> = replicas.nodes.iter().map(Server::resident).collect();
    let mut rng = SmallRng::seed_from_u64(u64::from(net));
    let mut open = Vec::new();
    for round in 0..400 {
        let peer = replicas.peers[round % 3];
        let Ok(mut socket) = TcpStream::connect(peer).await else {
            continue;
        };
        let _ = timeout(
            Duration::from_millis(50),
            socket.write_all(&rubbish(&mut rng)),
        )
        .await;
        open.push(socket);
    }
    for (node, before) in replicas.nodes.iter().zip(before) {
        let grown = node.resident().saturating_sub(before);
        assert!(grown < 48 << 10, "{grown} KiB more than before");
    }
    assert_still_held(&client, &guard, "a").await;
    if tls {
        // A replica that comes back gets through to the others, among 900 handshakes that never end.
        for round in 0..900 {
            if let Ok(mut socket) = TcpStream::connect(replicas.peers[round % 2]).await {
                let _ = socket.write_all(&[0x16, 3, 1, 2, 0, 1, 0]).await;
                open.push(socket);
            }
        }
        let listen = replicas.nodes[2].addr.to_string();
        replicas.nodes[2].signal("TERM");
        replicas.nodes[2].ended();
        replicas.nodes[2] = Replicas::node(replicas.dir.path(), 2, &listen);
        replicas.ready(2).await;
        let url = format!("{}/v1/status", replicas.nodes[2].url());
        let status: Value = serde_json::from_str(&get(&url).await).unwrap();
        assert!(status["groups"][0]["leader"].as_u64() > Some(0), "{status}");
        assert_still_held(&client, &guard, "a").await;
    }
    for node in &mut replicas.nodes {
        node.assert_sound();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_on_a_plain_peer_port_harms_nobody() {
    garbage_on_the_peer_port(31, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_and_half_open_handshakes_on_a_tls_peer_port_harm_nobody() {
    garbage_on_the_peer_port(32, true).await;
}

/// Whether a peer port answers the greeting of somebody who does not belong there, which it refuses.
async fn answers(peer: SocketAddr) -> bool {
    // Version, cluster, sender, receiver, incarnation, run, what it knows, URL, refusal.
    let hello = (
        3_u32,
        0_u64,
        9_u64,
        1_u64,
        0_u64,
        (0_u64, 0_u64, 0_u64, false),
        [0_u8; 0].as_slice(),
        "",
        None::<&str>,
    );
    let hello = postcard::to_stdvec(&hello).unwrap();
    let mut socket = TcpStream::connect(peer).await.unwrap();
    let length = (hello.len() as u32).to_le_bytes();
    let _ = socket.write_all(&[&length[..], &hello].concat()).await;
    let mut answer = Vec::new();
    let _ = timeout(Duration::from_secs(1), socket.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).contains("does not belong here")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_on_a_plain_peer_port_keeps_nobody_out() {
    let mut replicas = Replicas::start(33, false);
    replicas.ready(0).await;
    let mut silent = Vec::new();
    for round in 0..4 {
        for _ in 0..100 {
            silent.push(TcpStream::connect(replicas.peers[0]).await.unwrap());
        }
        assert!(answers(replicas.peers[0]).await, "round {round}");
    }
    replicas.nodes[0].assert_sound();
}
