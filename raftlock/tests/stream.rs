//! The stream: pipelining, wake-ups, lost notices, and clients that misbehave.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use raftlock::{Config, Handle, serve};
use raftlock_client::{AcquireOptions, Api, Event, Outcome, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

async fn start() -> (Handle, String, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let config = Config {
        max_waiters: 3,
        ..Config::single("127.0.0.1:0".parse().unwrap(), dir.path().to_owned())
    };
    let handle = serve(config).await.unwrap();
    let url = format!("http://{}", handle.addr());
    (handle, url, dir)
}

fn wait(ms: u64) -> AcquireOptions {
    AcquireOptions {
        wait_ms: ms,
        ..AcquireOptions::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_told_that_they_queue_and_woken_one_by_one() {
    let (handle, url, _dir) = start().await;
    let (stream, mut events) = Stream::connect(&url).await.unwrap();
    let mut sessions = Vec::new();
    for label in ["a", "b", "c"] {
        sessions.push(
            stream
                .create_session(5000, label, "x")
                .await
                .result()
                .unwrap()
                .session,
        );
    }
    let first = stream
        .acquire("x", &sessions[0], &wait(0))
        .await
        .result()
        .unwrap();
    let mut waiting = Vec::new();
    for session in &sessions[1..] {
        let (stream, session, number) = (stream.clone(), session.clone(), stream.number());
        waiting.push(tokio::spawn(async move {
            let grant = stream
                .acquire_numbered(number, "x", &session, &wait(5000))
                .await
                .result()
                .unwrap();
            (session, grant)
        }));
        let queued = timeout(Duration::from_secs(2), events.recv())
            .await
            .unwrap()
            .unwrap();
        assert!(
            matches!(queued, Event::Queued { call, .. } if call == number),
            "{queued:?}"
        );
    }
    assert_eq!(stream.show("x").await.result().unwrap(), (true, 2));
    stream
        .release("x", &sessions[0], first.token, None)
        .await
        .result()
        .unwrap();
    let (session, second) = waiting.remove(0).await.unwrap();
    assert_eq!(
        (session == sessions[1], second.token > first.token),
        (true, true),
        "first come, first served"
    );
    assert!(!waiting[0].is_finished());
    assert_eq!(stream.close(&sessions[1]).await.result().unwrap(), 1);
    let (_, third) = waiting.remove(0).await.unwrap();
    assert!(third.token > second.token);
    assert!(stream.check("x", third.token).await.result().unwrap());
    handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_session_is_told_with_its_grants() {
    let (handle, url, _dir) = start().await;
    let (stream, mut events) = Stream::connect(&url).await.unwrap();
    let session = stream
        .create_session(300, "a", "x")
        .await
        .result()
        .unwrap()
        .session;
    let grant = stream
        .acquire("x", &session, &wait(0))
        .await
        .result()
        .unwrap();
    let event = timeout(Duration::from_secs(3), events.recv())
        .await
        .unwrap()
        .unwrap();
    let locks = vec![("x".to_owned(), grant.token)];
    assert_eq!(
        event,
        Event::Lost {
            session: session.clone(),
            reason: "expired".to_owned(),
            locks
        }
    );
    assert!(
        matches!(stream.keepalive(&session).await, Outcome::DefiniteFail(error) if error.code == "session_unknown")
    );
    handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_refuses_and_names_a_pause() {
    let (handle, url, _dir) = start().await;
    let (stream, _events) = Stream::connect(&url).await.unwrap();
    let session = stream
        .create_session(5000, "a", "x")
        .await
        .result()
        .unwrap()
        .session;
    stream
        .acquire("x", &session, &wait(0))
        .await
        .result()
        .unwrap();
    for _ in 0..3 {
        let (stream, session) = (stream.clone(), session.clone());
        tokio::spawn(async move { stream.acquire("x", &session, &wait(5000)).await });
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    match stream.acquire("x", &session, &wait(5000)).await {
        Outcome::DefiniteFail(error) => assert_eq!(
            (error.code.as_str(), error.retry_after_ms),
            ("queue_full", Some(1000))
        ),
        other => panic!("{other:?}"),
    }
    handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_and_slow_readers_harm_nobody_else() {
    let (handle, url, _dir) = start().await;
    // Rubbish instead of HTTP.
    let mut raw = TcpStream::connect(handle.addr()).await.unwrap();
    raw.write_all(&[0xFF; 300]).await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(Duration::from_secs(2), raw.read_to_end(&mut answer)).await;
    // A stream whose client never reads: its own requests stop being read, nothing grows.
    let mut slow = TcpStream::connect(handle.addr()).await.unwrap();
    let upgrade = "GET /v1/stream HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                   sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
    slow.write_all(upgrade.as_bytes()).await.unwrap();
    let line = br#"{"id":1,"op":"show","lock":"x"}"#;
    let mut frame = vec![0x81, 0x80 | line.len() as u8, 0, 0, 0, 0];
    frame.extend_from_slice(line);
    for _ in 0..20_000 {
        if timeout(Duration::from_millis(50), slow.write_all(&frame))
            .await
            .is_err()
        {
            break;
        }
    }
    let (stream, _events) = Stream::connect(&url).await.unwrap();
    let session = stream
        .create_session(5000, "good", "x")
        .await
        .result()
        .unwrap()
        .session;
    stream
        .acquire("x", &session, &wait(0))
        .await
        .result()
        .unwrap();
    let long = "y".repeat(100_000);
    assert!(
        matches!(stream.show(&long).await, Outcome::DefiniteFail(error) if error.code == "bad_request")
    );
    handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_acquire_tells_that_it_is_queued() {
    let (handle, url, _dir) = start().await;
    let api = Api::new(&[url], Duration::from_secs(2)).unwrap();
    let open = async || {
        let opened = api.create_session(5000, "", Some("x")).await;
        opened.result().unwrap().session
    };
    let (first, second) = (open().await, open().await);
    let mut calls = Vec::new();
    let none = api
        .acquire_queued("x", &first, &wait(1000), |ahead| calls.push(ahead))
        .await;
    let token = none.result().unwrap().token;
    assert!(calls.is_empty(), "granted at once");
    let waiting = api
        .acquire_queued("x", &second, &wait(100), |ahead| calls.push(ahead))
        .await;
    assert_eq!(waiting.result().unwrap_err().code, "wait_timeout");
    assert_eq!(calls, [0]);
    let patient = wait(3000);
    let (next, released) = tokio::join!(
        api.acquire_queued("x", &second, &patient, |ahead| calls.push(ahead)),
        async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            api.release("x", &first, token, None).await
        }
    );
    assert!(next.result().unwrap().token > token && released.result().is_ok());
    assert_eq!(calls, [0, 0]);
    handle.stop().await;
    let gone = api.acquire_queued("x", &second, &wait(100), |_| {}).await;
    assert!(matches!(gone, Outcome::DefiniteFail(error) if error.code == "connect"));
}
