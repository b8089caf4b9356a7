//! Requests and stream messages that make no sense: every one gets a typed error, nothing panics, and nobody's lock changes
//! hands. All of it follows from seeds.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{Server, hold};
use futures_util::{SinkExt, StreamExt};
use raftlock_client::Stream;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{Bytes, Message};

const PATIENCE: Duration = Duration::from_secs(20);

fn pick<'a, T>(rng: &mut SmallRng, of: &'a [T]) -> &'a T {
    &of[rng.random_range(0..of.len())]
}

/// Bytes that a request line or a header may have, or their percent-encoding.
fn path_part(rng: &mut SmallRng) -> String {
    let known = [
        "a",
        "ns/a",
        "..",
        "%00",
        "%ff%fe",
        "%zz",
        "%",
        "//",
        "a:acquire",
        ":acquire",
        "a:release",
        "a:check",
        "a:",
        "?x=1&y",
        "00000000000000ff:keepalive",
        "0000000000000000",
        "%2F",
        "é",
        "a%3Aacquire",
        "\u{202e}",
    ];
    match rng.random_range(0..4) {
        0 | 1 => (*pick(rng, &known)).to_owned(),
        2 => "n".repeat(*pick(rng, &[511, 512, 513, 5000])),
        _ => (0..rng.random_range(1..20))
            .map(|_| rng.random_range('!'..='~'))
            .collect(),
    }
}

fn json(rng: &mut SmallRng, session: &str) -> Value {
    match rng.random_range(0..12) {
        0 => Value::Null,
        1 => Value::from(-1),
        2 => Value::from(u64::MAX),
        3 => Value::from(1.5),
        4 => Value::from("x".repeat(rng.random_range(0..2000))),
        5 => Value::from(vec![1; 3]),
        6 => serde_json::json!({ "a": { "b": [] } }),
        7 => Value::from(true),
        8 => Value::from("semaphore"),
        9 => Value::from(rng.random_range(0..4_u32)),
        10 => Value::from("ffffffffffffffff"),
        _ => Value::from(session),
    }
}

/// An object with fields of the API and values of any kind; sometimes cut, nested too deep, or no JSON at all.
fn body(rng: &mut SmallRng, session: &str) -> Vec<u8> {
    let fields = [
        "session",
        "mode",
        "permits",
        "owner",
        "request_id",
        "epoch",
        "token",
        "ttl_ms",
        "client",
        "lock",
        "group",
        "namespace",
        "id",
        "op",
        "unknown",
    ];
    let mut object = serde_json::Map::new();
    for _ in 0..rng.random_range(0..6) {
        object.insert((*pick(rng, &fields)).to_owned(), json(rng, session));
    }
    if rng.random_bool(0.5) {
        object.insert("session".to_owned(), Value::from(session));
    }
    let mut bytes = serde_json::to_vec(&object).unwrap();
    match rng.random_range(0..8) {
        0 => bytes.truncate(rng.random_range(0..=bytes.len())),
        1 => bytes = "[".repeat(30_000).into_bytes(),
        2 => (0..20).for_each(|_| bytes.push(rng.random())),
        3 if rng.random_bool(0.2) => bytes.resize(rng.random_range(60_000..80_000), b' '),
        _ => {}
    }
    bytes
}

fn request(rng: &mut SmallRng, session: &str) -> Vec<u8> {
    let methods = ["GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS", "BREW"];
    let roots = [
        "/v1/locks/",
        "/v1/sessions/",
        "/v1/sessions",
        "/v1/locks",
        "/v1/map",
        "/v1/status",
        "/v1/stream",
        "/v1/admin/",
        "/metrics",
        "/healthz",
        "/",
        "/v2/",
    ];
    let mut path = (*pick(rng, &roots)).to_owned();
    if rng.random_bool(0.7) {
        path.push_str(&path_part(rng));
    }
    let body = body(rng, session);
    let mut head = format!(
        "{} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n",
        pick(rng, &methods)
    );
    let headers = [
        "authorization: Bearer x",
        "authorization: \u{7f}",
        "content-type: text/xml",
        "upgrade: websocket",
        "sec-websocket-version: 12",
        "expect: 100-continue",
        "accept-encoding: gzip",
        "x-forwarded-for: 1.2.3.4",
    ];
    for _ in 0..rng.random_range(0..4) {
        let header = *pick(rng, &headers);
        if !header.contains('\u{7f}') {
            head.push_str(&format!("{header}\r\n"));
        }
    }
    if rng.random_bool(0.1) {
        head.push_str(&format!(
            "x-long: {}\r\n",
            "h".repeat(rng.random_range(1..8000))
        ));
    }
    let mut bytes = format!("{head}content-length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend(body);
    bytes
}

async fn ask(server: &Server, request: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(server.addr).await.unwrap();
    // A server that has heard enough closes: what it said stands.
    let _ = socket.write_all(request).await;
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, socket.read_to_end(&mut answer))
        .await
        .unwrap_or_else(|_| panic!("no end: {}", String::from_utf8_lossy(request)));
    answer
}

fn assert_typed(error: &Value, of: &str) {
    let word = |key: &str| {
        error[key]
            .as_str()
            .unwrap_or_else(|| panic!("no {key} in {error}, of {of}"))
    };
    assert!(!word("code").is_empty() && !word("message").is_empty());
    assert!(["none", "unknown"].contains(&word("effect")), "{error}");
    let advice = ["no", "later", "other_node", "new_session", "same_request"];
    assert!(advice.contains(&word("retry")), "{error}");
    assert!(
        word("message").chars().count() < 400,
        "quotes too much: {error}"
    );
}

/// Are these the characters that a request's path may have? What has others is no HTTP.
fn is_http(request: &[u8]) -> bool {
    let line = request
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    let allowed =
        |byte: &u8| byte.is_ascii_alphanumeric() || b" -._~:/?#[]@!$&'()*+,;=%".contains(byte);
    line.iter().all(allowed)
}

fn assert_answer(answer: &[u8], of: &[u8]) {
    if !is_http(of) && answer.starts_with(b"HTTP/1.1 400") {
        return;
    }
    let of = String::from_utf8_lossy(&of[..of.len().min(400)]);
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no head in {text:?}, of {of}"));
    let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(status < 500 || status == 503, "{text}, of {of}");
    if status >= 300 {
        let value: Value =
            serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON in {text:?}, of {of}"));
        assert_typed(&value["error"], &of);
    }
}

fn start() -> (Server, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&["--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]);
    (server, dir)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_senseless_request_gets_a_typed_error() {
    let (mut server, _dir) = start();
    let (stream, _events) = Stream::connect(&server.url()).await.unwrap();
    let (_, held) = hold(&stream, "kept", 60_000).await;
    let own = common::open(&stream, "n", 60_000).await;
    let mut rng = SmallRng::seed_from_u64(1);
    for _ in 0..300 {
        let request = request(&mut rng, &own);
        assert_answer(&ask(&server, &request).await, &request);
    }
    let before = server.resident();
    for _ in 0..1500 {
        let request = request(&mut rng, &own);
        assert_answer(&ask(&server, &request).await, &request);
    }
    // Rubbish that is no HTTP is answered by whatever, or by nothing, and closed.
    for _ in 0..200 {
        let length = rng.random_range(1..3000);
        let mut rubbish: Vec<u8> = (0..length).map(|_| rng.random()).collect();
        rubbish.extend(b"\r\n\r\n");
        ask(&server, &rubbish).await;
    }
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 32 << 10, "{grown} KiB more than before");
    assert!(stream.check("kept", held.token).await.result().unwrap());
    server.assert_sound();
}

/// Lines as a client that is out of its mind would send them.
fn lines(rng: &mut SmallRng, session: &str) -> String {
    let mut text = String::new();
    for _ in 0..rng.random_range(1..30) {
        let line = String::from_utf8_lossy(&body(rng, session)).replace(['\n', '\r'], " ");
        let ops = [
            "acquire",
            "release",
            "keepalive",
            "show",
            "check",
            "open",
            "attach",
            "close",
            "sing",
        ];
        match rng.random_range(0..3) {
            0 => text.push_str(&line),
            1 => text.push('x'),
            _ => {
                let (id, op) = (rng.random_range(1..100_000_000_u64), pick(rng, &ops));
                let name = "n".repeat(*pick(rng, &[0, 1, 512, 513]));
                text.push_str(&format!(
                    r#"{{"id":{id},"op":"{op}","lock":"{name}","session":"{session}","token":{}}}"#,
                    rng.random::<u64>()
                ));
            }
        }
        text.push('\n');
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_senseless_line_gets_an_answer() {
    let (mut server, _dir) = start();
    let (stream, _events) = Stream::connect(&server.url()).await.unwrap();
    let (_, held) = hold(&stream, "kept", 60_000).await;
    let url = format!("ws://{}/v1/stream", server.addr);
    let mut rng = SmallRng::seed_from_u64(2);
    for _ in 0..20 {
        let own = common::open(&stream, "n", 60_000).await;
        let (mut socket, _) = tokio_tungstenite::connect_async(&url).await.unwrap();
        for _ in 0..10 {
            let text = lines(&mut rng, &own);
            let asked = text.lines().filter(|line| !line.is_empty()).count();
            socket.send(Message::text(text.clone())).await.unwrap();
            let mut answered = 0;
            while answered < asked {
                let message = timeout(PATIENCE, socket.next())
                    .await
                    .unwrap_or_else(|_| panic!("{answered} answers to {asked} lines: {text}"));
                let Message::Text(answers) = message.unwrap().unwrap() else {
                    panic!("the stream ended after {text}");
                };
                for line in answers.lines() {
                    let value: Value = serde_json::from_str(line).unwrap();
                    if let Some(error) = value.get("error") {
                        assert_typed(error, &text);
                    }
                    let told = value.get("lost").is_some() || value.get("queued").is_some();
                    answered += usize::from(!told);
                }
            }
        }
    }
    assert!(stream.check("kept", held.token).await.result().unwrap());
    server.assert_sound();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_cannot_be_read_ends_the_stream_with_a_reason() {
    let (mut server, _dir) = start();
    let url = format!("ws://{}/v1/stream", server.addr);
    let (mut socket, _) = tokio_tungstenite::connect_async(&url).await.unwrap();
    socket
        .send(Message::Binary(Bytes::from_static(&[0, 1])))
        .await
        .unwrap();
    let told = socket.next().await.unwrap().unwrap().into_text().unwrap();
    let told: Value = serde_json::from_str(told.trim()).unwrap();
    assert_eq!(told["error"]["message"], "send text messages");
    socket
        .send(Message::text("y".repeat(300 << 10)))
        .await
        .unwrap();
    let Message::Close(Some(frame)) = timeout(PATIENCE, socket.next())
        .await
        .unwrap()
        .unwrap()
        .unwrap()
    else {
        panic!("no close frame");
    };
    assert!(frame.reason.starts_with("bad_request: "), "{frame:?}");
    // Frames that are none: reserved bits, no mask, text that is no UTF-8, a length without end.
    let mut rng = SmallRng::seed_from_u64(3);
    for _ in 0..100 {
        let mut raw = TcpStream::connect(server.addr).await.unwrap();
        raw.write_all(UPGRADE.as_bytes()).await.unwrap();
        let mut head = [0; 1024];
        let read = raw.read(&mut head).await.unwrap();
        assert!(head[..read].starts_with(b"HTTP/1.1 101"));
        let mut frame: Vec<u8> = (0..rng.random_range(2..64)).map(|_| rng.random()).collect();
        if rng.random_bool(0.3) {
            frame = vec![
                0x81, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0,
            ];
        }
        let _ = raw.write_all(&frame).await;
        let _ = raw.shutdown().await;
        let mut rest = Vec::new();
        let ended = timeout(PATIENCE, raw.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "the stream stays open after {frame:?}");
    }
    server.assert_sound();
}

const UPGRADE: &str = "GET /v1/stream HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                       sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
