//! Just enough HTTP/1.1 to ask a server one question. The caller bounds the time.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Sends one request on a connection of its own and reads the JSON answer of a 2xx.
pub async fn json(addr: SocketAddr, path: &str, body: Option<&Value>) -> Result<Value, String> {
    let request = match body {
        None => format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n"),
        Some(body) => {
            let body = body.to_string();
            format!(
                "POST {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
        }
    };
    let mut stream = TcpStream::connect(addr).await.map_err(|e| e.to_string())?;
    stream
        .write_all(request.as_bytes())
        .await
        .map_err(|e| e.to_string())?;
    let mut answer = Vec::new();
    stream
        .read_to_end(&mut answer)
        .await
        .map_err(|e| e.to_string())?;
    parse(&answer)
}

fn parse(answer: &[u8]) -> Result<Value, String> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text
        .split_once("\r\n\r\n")
        .ok_or("the answer is no HTTP response")?;
    let status = head.lines().next().unwrap_or_default();
    let body = if head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked")
    {
        unchunk(body)
    } else {
        body.to_string()
    };
    if !status
        .split(' ')
        .nth(1)
        .is_some_and(|code| code.starts_with('2'))
    {
        return Err(format!("{status}: {}", body.trim()));
    }
    if body.trim().is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_str(&body).map_err(|e| format!("{e} in {:?}", body.trim()))
}

fn unchunk(mut body: &str) -> String {
    let mut out = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        let Some(chunk) = rest.get(..size).filter(|_| size > 0) else {
            break;
        };
        out += chunk;
        body = rest.get(size + 2..).unwrap_or_default();
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn bodies_are_read_plain_and_chunked() {
        let plain = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":1}";
        assert_eq!(parse(plain).unwrap()["a"], 1);
        let chunked =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{\"a\r\n4\r\n\":2}\r\n0\r\n\r\n";
        assert_eq!(parse(chunked).unwrap()["a"], 2);
    }

    #[test]
    fn other_statuses_are_errors() {
        let e = parse(b"HTTP/1.1 503 Busy\r\n\r\nno leader").unwrap_err();
        assert!(e.contains("503") && e.contains("no leader"));
        assert!(parse(b"rubbish").is_err());
    }
}
