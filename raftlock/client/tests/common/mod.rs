//! A node that answers as a test wants it to.
#![allow(dead_code, clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use raftlock_client::{Client, ClientOptions};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request as the node read it.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Method and path.
    pub what: String,
    pub body: Value,
}

/// What becomes of a request.
pub enum Answer {
    Json(u16, Value),
    /// The same, so much later.
    Late(Duration, Value),
    /// The connection is closed instead.
    Cut,
    /// Nothing comes.
    Silence,
}

/// A definite refusal.
pub fn refused(status: u16, code: &str, retry: &str) -> Answer {
    let error = json!({ "code": code, "message": "test", "effect": "none", "retry": retry });
    Answer::Json(status, json!({ "error": error }))
}

pub fn granted(token: u64) -> Answer {
    Answer::Json(200, json!({ "token": token, "count": 1 }))
}

type Decide = Arc<dyn Fn(&Ask) -> Option<Answer> + Send + Sync>;

/// The node: it serves in a thread of its own, whatever becomes of the test's runtime.
pub struct Fake {
    pub addr: String,
    asked: Arc<Mutex<Vec<Ask>>>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Fake {
    /// `decide` answers; what it leaves is answered as a willing node would, with sessions of this TTL.
    pub fn start(
        ttl_ms: u64,
        decide: impl Fn(&Ask) -> Option<Answer> + Send + Sync + 'static,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let asked: Arc<Mutex<Vec<Ask>>> = Arc::default();
        let (keep, decide): (_, Decide) = (Arc::clone(&asked), Arc::new(decide));
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(
                    stream,
                    ttl_ms,
                    Arc::clone(&keep),
                    Arc::clone(&decide),
                ));
            }
        });
        Fake {
            addr,
            asked,
            runtime: Some(runtime),
        }
    }

    pub fn client(&self) -> Client {
        let options = ClientOptions {
            timeout: Duration::from_millis(500),
            ..ClientOptions::default()
        };
        Client::new(std::slice::from_ref(&self.addr), options).unwrap()
    }

    /// Requests so far whose path ends so.
    pub fn asked(&self, end: &str) -> Vec<Ask> {
        let asked = self.asked.lock().unwrap();
        let these = asked.iter().filter(|ask| ask.what.ends_with(end));
        these.cloned().collect()
    }

    /// Waits for a request whose path ends so and which fits.
    pub fn sees(&self, end: &str, fits: impl Fn(&Ask) -> bool) -> bool {
        for _ in 0..300 {
            if self.asked(end).iter().any(&fits) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        // A test's own runtime may not wait for it.
        let runtime = self.runtime.take();
        runtime
            .into_iter()
            .for_each(|runtime| runtime.shutdown_background());
    }
}

async fn serve(mut stream: TcpStream, ttl_ms: u64, asked: Arc<Mutex<Vec<Ask>>>, decide: Decide) {
    let mut unread = Vec::new();
    loop {
        let ask = loop {
            if let Some(ask) = take(&mut unread) {
                break ask;
            }
            if matches!(stream.read_buf(&mut unread).await, Ok(0) | Err(_)) {
                return;
            }
        };
        asked.lock().unwrap().push(ask.clone());
        let answer = decide(&ask).unwrap_or_else(|| willing(&ask, ttl_ms));
        let (status, body) = match answer {
            Answer::Json(status, body) => (status, body),
            Answer::Late(by, body) => {
                tokio::time::sleep(by).await;
                (200, body)
            }
            Answer::Cut => return,
            Answer::Silence => std::future::pending().await,
        };
        let (text, len) = (body.to_string(), body.to_string().len());
        let whole = format!("HTTP/1.1 {status} x\r\ncontent-length: {len}\r\n\r\n{text}");
        if stream.write_all(whole.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The first whole request.
fn take(unread: &mut Vec<u8>) -> Option<Ask> {
    let head = unread.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&unread[..head]).to_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let whole = head + length.map_or(0, |length| length.parse().unwrap());
    if unread.len() < whole {
        return None;
    }
    let first = String::from_utf8_lossy(&unread[..head]);
    let what = first
        .lines()
        .next()
        .unwrap()
        .trim_end_matches(" HTTP/1.1")
        .to_owned();
    let body = serde_json::from_slice(&unread[head..whole]).unwrap_or(Value::Null);
    unread.drain(..whole);
    Some(Ask { what, body })
}

fn willing(ask: &Ask, ttl_ms: u64) -> Answer {
    let body = match ask.what.as_str() {
        "GET /v1/map" => json!({ "version": 1, "buckets": 4096, "groups": vec![0; 4096] }),
        "POST /v1/sessions" => json!({
            "session": format!("00{:014x}", rand::random::<u64>() >> 8),
            "ttl_ms": ttl_ms, "epoch": 1, "group": 0, "groups": 1, "map": 1,
        }),
        what if what.ends_with(":keepalive") => json!({ "ttl_ms": ttl_ms, "epoch": 1 }),
        what if what.ends_with(":acquire") => json!({ "token": 7, "count": 1 }),
        what if what.ends_with(":release") => json!({ "released": true, "remaining": 0 }),
        what if what.ends_with(":withdraw") => json!({ "withdrawn": true, "was": "unknown" }),
        _ => json!({ "closed": true, "released": 0 }),
    };
    Answer::Json(200, body)
}
