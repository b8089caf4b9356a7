//! Real servers for this crate's tests; where a program is not installed the
//! test is skipped with the reason printed.
#![allow(clippy::unwrap_used)]

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
    let child = Command::new(program)
        .args(args(dir.path().to_str().unwrap()))
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
    let server = Server {
        child,
        addr: format!("127.0.0.1:{port}"),
        _dir: dir,
    };
    let began = Instant::now();
    while std::net::TcpStream::connect(&server.addr).is_err() {
        assert!(
            began.elapsed() < Duration::from_secs(20),
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
