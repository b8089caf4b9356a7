//! raftlock over unary HTTP/1.1, one request at a time on each connection, as a client of a benchmark.
//!
//! The requests are written by hand: a general HTTP client costs more than the server does, and both share the machine.

use anyhow::{Context, bail};
use raftlock::buckets::BucketMap;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::load::{Caller, Work};
use super::stream::lock_name;

/// A client with a connection of its own.
pub struct HttpCaller {
    socket: TcpStream,
    buffer: Vec<u8>,
    host: String,
    session: String,
    lock: String,
    wait_ms: u64,
    token: u64,
}

/// Connects `clients`, each to the leader of its lock's group, with a session of its own.
pub async fn callers(
    leaders: &[String],
    clients: usize,
    work: Work,
) -> anyhow::Result<Vec<HttpCaller>> {
    let map = BucketMap::even(leaders.len() as u32);
    let mut out = Vec::new();
    for number in 0..clients {
        let lock = lock_name(work, number);
        let url = &leaders[map.group_of(&lock) as usize];
        let host = url.trim_start_matches("http://").to_owned();
        let socket = TcpStream::connect(&host).await?;
        socket.set_nodelay(true)?;
        let mut caller = HttpCaller {
            socket,
            buffer: Vec::new(),
            host,
            session: String::new(),
            lock,
            wait_ms: if work == Work::Contended { 30_000 } else { 0 },
            token: 0,
        };
        let body = json!({ "ttl_ms": 60_000, "client": "bench", "lock": caller.lock }).to_string();
        let opened = caller.call("POST", "/v1/sessions", &body).await?;
        caller.session = opened["session"].as_str().unwrap_or_default().to_owned();
        out.push(caller);
    }
    Ok(out)
}

impl HttpCaller {
    async fn call(&mut self, method: &str, path: &str, body: &str) -> anyhow::Result<Value> {
        let (host, length) = (&self.host, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.socket.write_all(request.as_bytes()).await?;
        self.buffer.clear();
        loop {
            if self.socket.read_buf(&mut self.buffer).await? == 0 {
                bail!("the server closed the connection");
            }
            if let Some((status, body)) = whole(&self.buffer)? {
                if status != 200 {
                    bail!("{status}: {}", String::from_utf8_lossy(body));
                }
                return Ok(serde_json::from_slice(body)?);
            }
        }
    }

    async fn on_lock(&mut self, verb: &str, body: &str) -> anyhow::Result<Value> {
        let path = format!("/v1/locks/{}:{verb}", self.lock);
        self.call("POST", &path, body).await
    }
}

/// Status and body, once all of a response is there.
fn whole(bytes: &[u8]) -> anyhow::Result<Option<(u16, &[u8])>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&bytes[..end])?.to_ascii_lowercase();
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let status = status.and_then(|word| word.parse().ok());
    let length = lines.find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.context("no content-length")?.trim().parse()?;
    let body = bytes.get(end + 4..end + 4 + length);
    Ok(body.map(|body| (status.unwrap_or(0), body)))
}

impl Caller for HttpCaller {
    async fn acquire(&mut self) -> anyhow::Result<()> {
        let (session, wait_ms) = (&self.session, self.wait_ms);
        let body = format!(r#"{{"session":"{session}","wait_ms":{wait_ms}}}"#);
        let grant = self.on_lock("acquire", &body).await?;
        self.token = grant["token"].as_u64().context("no token")?;
        Ok(())
    }

    async fn release(&mut self) -> anyhow::Result<()> {
        let (session, token) = (&self.session, self.token);
        let body = format!(r#"{{"session":"{session}","token":{token}}}"#);
        self.on_lock("release", &body).await?;
        Ok(())
    }

    async fn keepalive(&mut self) -> anyhow::Result<()> {
        let path = format!("/v1/sessions/{}:keepalive", self.session);
        self.call("POST", &path, "").await?;
        Ok(())
    }

    async fn read(&mut self) -> anyhow::Result<()> {
        let path = format!("/v1/locks/{}", self.lock);
        self.call("GET", &path, "").await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_response_is_whole_with_its_last_byte() {
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnull";
        assert_eq!(whole(&response[..response.len() - 1]).unwrap(), None);
        assert_eq!(whole(response).unwrap(), Some((200, &b"null"[..])));
        assert!(whole(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
