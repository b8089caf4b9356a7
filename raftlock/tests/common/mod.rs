//! What several tests share. Each test binary uses a part of it.
#![allow(dead_code, clippy::unwrap_used)]

pub mod replicas;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use raftlock_client::{AcquireOptions, Grant, Stream};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// Acquire options that only wait.
pub fn wait(ms: u64) -> AcquireOptions {
    AcquireOptions {
        wait_ms: ms,
        ..AcquireOptions::default()
    }
}

/// A session for a lock.
pub async fn open(stream: &Stream, lock: &str, ttl_ms: u64) -> String {
    let opened = stream.create_session(ttl_ms, "test", lock).await;
    opened.result().unwrap().session
}

/// A session that holds a lock.
pub async fn hold(stream: &Stream, lock: &str, ttl_ms: u64) -> (String, Grant) {
    let session = open(stream, lock, ttl_ms).await;
    let grant = stream.acquire(lock, &session, &wait(0)).await;
    (session, grant.result().unwrap())
}

/// An address that nobody listens on now. Each test has its own loopback net, so that two never draw the same.
pub fn free_addr(net: u8) -> SocketAddr {
    let listener = TcpListener::bind(format!("127.0.{net}.1:0")).unwrap();
    listener.local_addr().unwrap()
}

/// Peer addresses of replicas, by number.
pub fn peers(net: u8, count: u64) -> BTreeMap<u64, String> {
    let one = |id| (id, free_addr(net).to_string());
    (1..=count).map(one).collect()
}

/// The same as `--peers` takes it.
pub fn peers_argument(net: u8, count: u64) -> String {
    let peers = peers(net, count).into_iter();
    let one: Vec<String> = peers.map(|(id, addr)| format!("{id}={addr}")).collect();
    one.join(",")
}

/// An authority of its own in `dir`, named `stem`, and a certificate for an address signed by it: (ca, cert, key).
pub fn certificates(dir: &Path, stem: &str, host: &str) -> (PathBuf, PathBuf, PathBuf) {
    let file = |kind: &str| dir.join(format!("{stem}-{kind}.pem"));
    let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_cert = ca.self_signed(&ca_key).unwrap();
    let issuer = Issuer::new(ca, ca_key);
    let leaf = CertificateParams::new(vec![host.to_owned()]).unwrap();
    let cert = leaf.signed_by(&key, &issuer).unwrap();
    std::fs::write(file("ca"), ca_cert.pem()).unwrap();
    std::fs::write(file("cert"), cert.pem()).unwrap();
    std::fs::write(file("key"), key.serialize_pem()).unwrap();
    (file("ca"), file("cert"), file("key"))
}

/// A server process of its own: what it says on stderr is kept.
pub struct Server {
    child: Child,
    pub addr: SocketAddr,
    said: Arc<Mutex<String>>,
}

impl Server {
    /// Starts `raftlock serve` with these arguments and waits until it serves.
    pub fn start(args: &[&str]) -> Self {
        let program = env!("CARGO_BIN_EXE_raftlock");
        let mut command = Command::new(program);
        let short = "--min-ttl-ms=100";
        Self::run(
            command
                .args(["serve", short])
                .args(args)
                .env("RUST_LOG", "warn"),
        )
    }

    /// The same with the logs that it writes by itself.
    pub fn start_logging(args: &[&str]) -> Self {
        let program = env!("CARGO_BIN_EXE_raftlock");
        let mut command = Command::new(program);
        Self::run(command.arg("serve").args(args).env_remove("RUST_LOG"))
    }

    /// The same where a process may have so many open files.
    pub fn start_limited(files: u32, args: &[&str]) -> Self {
        let script = format!("ulimit -n {files}; exec \"$0\" serve --min-ttl-ms=100 \"$@\"");
        let program = env!("CARGO_BIN_EXE_raftlock");
        let mut command = Command::new("sh");
        command.args(["-c", &script, program]).args(args);
        Self::run(command.env("RUST_LOG", "warn"))
    }

    /// A lone node in `dir` by a configuration file of this text.
    pub fn configured(dir: &Path, text: &str) -> Self {
        let file = dir.join("node.toml");
        let data = dir.join("data").display().to_string();
        std::fs::write(
            &file,
            format!("listen = \"127.0.0.1:0\"\ndata = {data:?}\n{text}"),
        )
        .unwrap();
        Self::start(&["--config", file.to_str().unwrap()])
    }

    fn run(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let (mut stderr, keep) = (child.stderr.take().unwrap(), Arc::clone(&said));
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
                keep.lock().unwrap().push_str(&text);
            }
        });
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let addr = line.trim().strip_prefix("listening on ");
        let addr = addr.unwrap_or_else(|| panic!("{line}{}", said.lock().unwrap()));
        Server {
            addr: addr.parse().unwrap(),
            child,
            said,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has it ended?
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end.
    pub fn ended(&mut self) {
        self.child.wait().unwrap();
    }

    /// Sends it a signal.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let done = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(done.unwrap().success());
    }

    /// Memory that it has in use, KiB.
    pub fn resident(&self) -> u64 {
        let status = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.unwrap().trim().trim_end_matches(" kB");
        kib.parse().unwrap()
    }

    /// What it said on stderr.
    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// It still runs, and nothing in it panicked.
    pub fn assert_sound(&mut self) {
        let ended = self.child.try_wait().unwrap();
        let said = self.said();
        assert!(ended.is_none(), "{ended:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Repeats a look until it sees something.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..400 {
        if let Some(seen) = look().await {
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not within 20 s: {what}");
}
