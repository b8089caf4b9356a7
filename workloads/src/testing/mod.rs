//! Real servers for this crate's tests; where a program is not installed the
//! test is skipped with the reason printed.
#![allow(clippy::unwrap_used)]

pub mod proxy;
pub mod record;
pub mod trial;

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::locks::{BoxedLock, LockContext, Signals, Want};
use crate::protocol::{Endpoint, Mode, Params, StoreConf, SystemConf};
use crate::stores::{Access, StoreContext};

/// A process that ends with its value.
pub struct Server {
    child: Child,
    pub addr: String,
    _dir: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Starts a program and waits until it accepts connections on `port`.
pub fn start(program: &str, port: u16, args: impl FnOnce(&str) -> Vec<String>) -> Option<Server> {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command.args(args(dir.path().to_str().unwrap()));
    run(command, port, dir)
}

fn run(mut command: Command, port: u16, dir: tempfile::TempDir) -> Option<Server> {
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let child = match child {
        Ok(child) => child,
        Err(e) => {
            eprintln!("skipped: {program} does not start: {e}");
            return None;
        }
    };
    let addr = format!("127.0.0.1:{port}");
    let mut server = Server {
        child,
        addr,
        _dir: dir,
    };
    let began = Instant::now();
    while std::net::TcpStream::connect(&server.addr).is_err() {
        if let Some(status) = server.child.try_wait().unwrap() {
            eprintln!("skipped: {program} ended at once: {status}");
            return None;
        }
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "{program} does not answer"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    Some(server)
}

pub fn redis() -> Option<Server> {
    let port = free_port();
    start("redis-server", port, |_| {
        [
            "--port",
            &port.to_string(),
            "--save",
            "",
            "--appendonly",
            "no",
        ]
        .map(String::from)
        .into()
    })
}

pub fn params(json: serde_json::Value) -> Params {
    json.as_object().unwrap().clone()
}

pub fn lock_context(
    name: &str,
    addrs: &[&str],
    json: serde_json::Value,
    client: u32,
) -> LockContext {
    LockContext {
        system: SystemConf {
            name: name.into(),
            endpoints: addrs
                .iter()
                .enumerate()
                .map(|(i, a)| Endpoint {
                    name: format!("n{i}"),
                    addr: (*a).into(),
                })
                .collect(),
            params: params(json),
        },
        worker: 0,
        client,
        seed: 7,
        timeout: Duration::from_secs(2),
        signals: Signals::new(|_| {}),
    }
}

/// A lock client by name, without parameters.
pub fn lock(name: &str, addrs: &[&str], client: u32) -> BoxedLock {
    let cx = lock_context(name, addrs, serde_json::json!({}), client);
    (crate::locks::find(name).unwrap().new)(cx).unwrap()
}

pub fn store_context(kind: &str, addr: &str, fenced: bool) -> StoreContext {
    StoreContext {
        conf: StoreConf {
            kind: kind.into(),
            addr: addr.into(),
            fenced,
            params: Params::new(),
        },
        worker: 0,
        client: 0,
        timeout: Duration::from_secs(2),
    }
}

pub fn want(key: &str, ttl_ms: u64, wait_ms: u64) -> Want {
    Want {
        key: key.into(),
        mode: Mode::Exclusive,
        ttl: Some(Duration::from_millis(ttl_ms)),
        wait: Duration::from_millis(wait_ms),
        permits: None,
        request: 1,
    }
}

pub fn access(key: &str, fence: u64) -> Access {
    Access {
        key: key.into(),
        owner: format!("o{fence}").into(),
        fence: Some(crate::protocol::Fence(fence)),
    }
}

pub fn etcd() -> Option<Server> {
    let (port, peer) = (free_port(), free_port());
    start("etcd", port, |dir| {
        let (client, peer) = (
            format!("http://127.0.0.1:{port}"),
            format!("http://127.0.0.1:{peer}"),
        );
        [
            ("--data-dir", format!("{dir}/data").as_str()),
            ("--listen-client-urls", &client),
            ("--advertise-client-urls", &client),
            ("--listen-peer-urls", &peer),
            ("--initial-advertise-peer-urls", &peer),
            ("--initial-cluster", &format!("default={peer}")),
        ]
        .iter()
        .flat_map(|(k, v)| [(*k).to_owned(), (*v).to_owned()])
        .collect()
    })
}

pub fn zookeeper() -> Option<Server> {
    let port = free_port();
    let server = start("java", port, |dir| {
        let conf = format!("{dir}/zoo.cfg");
        let text = format!(
            "tickTime=200\ndataDir={dir}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
             admin.enableServer=false\n"
        );
        std::fs::write(&conf, text).unwrap();
        let classpath = "/usr/share/java/zookeeper.jar:/usr/share/java/*:/etc/zookeeper/conf";
        [
            "-Xmx128m",
            "-cp",
            classpath,
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            &conf,
        ]
        .map(String::from)
        .into()
    })?;
    eventually("zookeeper", || {
        use std::io::{Read, Write};
        let Ok(mut socket) = std::net::TcpStream::connect(&server.addr) else {
            return false;
        };
        let patience = Some(Duration::from_millis(500));
        let mut answer = [0; 4096];
        socket.set_read_timeout(patience).is_ok()
            && socket.write_all(b"srvr").is_ok()
            && socket
                .read(&mut answer)
                .is_ok_and(|n| String::from_utf8_lossy(&answer[..n]).contains("Zookeeper version"))
    });
    Some(server)
}

/// PostgreSQL runs as another user where we are root, since it refuses to be root.
pub fn postgres() -> Option<Server> {
    use std::os::unix::process::CommandExt;
    let bin = std::fs::read_dir("/usr/lib/postgresql")
        .ok()
        .and_then(|dirs| dirs.flatten().map(|d| d.path().join("bin")).max());
    let Some(bin) = bin else {
        eprintln!("skipped: no /usr/lib/postgresql");
        return None;
    };
    let number = |args: &[&str]| -> Option<u32> {
        let out = Command::new("id").args(args).output().ok()?;
        String::from_utf8(out.stdout).ok()?.trim().parse().ok()
    };
    let dir = tempfile::tempdir().unwrap();
    let mut commands = [
        Command::new(bin.join("initdb")),
        Command::new(bin.join("postgres")),
    ];
    if number(&["-u"]) == Some(0) {
        let Some((uid, gid)) = number(&["-u", "postgres"]).zip(number(&["-g", "postgres"])) else {
            eprintln!("skipped: no user postgres");
            return None;
        };
        std::os::unix::fs::chown(dir.path(), Some(uid), Some(gid)).unwrap();
        for command in &mut commands {
            command.uid(uid).gid(gid);
        }
    }
    let data = dir.path().join("data");
    let [mut initdb, mut server] = commands;
    initdb
        .arg("-D")
        .arg(&data)
        .args(["-U", "postgres", "-A", "trust", "--no-sync"]);
    match initdb.current_dir(dir.path()).output() {
        Ok(out) if out.status.success() => {}
        other => {
            eprintln!("skipped: initdb: {other:?}");
            return None;
        }
    }
    let port = free_port();
    server
        .arg("-D")
        .arg(&data)
        .args(["-F", "-h", "127.0.0.1", "-p", &port.to_string()]);
    server.arg("-k").arg(dir.path());
    let server = run(server, port, dir)?;
    eventually("postgres", || {
        let mut ask = Command::new(bin.join("pg_isready"));
        let ask = ask.args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()]);
        ask.status().is_ok_and(|s| s.success())
    });
    Some(server)
}

fn eventually(what: &str, mut ready: impl FnMut() -> bool) {
    let began = Instant::now();
    while !ready() {
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "{what} does not get ready"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}
