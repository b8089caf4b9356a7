//! The stream: pipelining, wake-ups, lost notices, full queues.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{hold, open, wait};
use raftlock::{Config, Handle, serve};
use raftlock_client::{Api, Event, Outcome, Stream};
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_told_that_they_queue_and_woken_one_by_one() {
    let (handle, url, _dir) = start().await;
    let (stream, mut events) = Stream::connect(&url).await.unwrap();
    let (holder, first) = hold(&stream, "x", 5000).await;
    let mut sessions = vec![holder];
    for _ in 0..2 {
        sessions.push(open(&stream, "x", 5000).await);
    }
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
    let (session, grant) = hold(&stream, "x", 300).await;
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
async fn a_call_on_a_stream_that_has_ended_is_unknown_at_once() {
    let (handle, url, _dir) = start().await;
    let (stream, mut events) = Stream::connect(&url).await.unwrap();
    handle.stop().await;
    assert_eq!(
        timeout(Duration::from_secs(5), events.recv())
            .await
            .unwrap(),
        None
    );
    let shown = timeout(Duration::from_secs(5), stream.show("x"))
        .await
        .unwrap();
    assert!(matches!(shown, Outcome::Unknown(error) if error.code == "transport"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_refuses_and_names_a_pause() {
    let (handle, url, _dir) = start().await;
    let (stream, _events) = Stream::connect(&url).await.unwrap();
    let (session, _) = hold(&stream, "x", 5000).await;
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
