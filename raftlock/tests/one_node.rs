//! One node over its HTTP API, with the client library.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::{Duration, Instant};

use raftlock::{Config, Handle, serve};
use raftlock_client::{
    AcquireOptions, Api, Client, ClientOptions, Mode, Outcome, Security, Stream, Undone,
};

async fn start(dir: &Path) -> (Handle, Api, String) {
    let config = Config::single("127.0.0.1:0".parse().unwrap(), dir.to_owned());
    let handle = serve(config).await.unwrap();
    let endpoint = handle.addr().to_string();
    let api = Api::new(std::slice::from_ref(&endpoint), Duration::from_secs(5)).unwrap();
    (handle, api, endpoint)
}

fn wait(ms: u64) -> AcquireOptions {
    AcquireOptions {
        wait_ms: ms,
        ..AcquireOptions::default()
    }
}

fn code<T: std::fmt::Debug>(outcome: Outcome<T>) -> String {
    match outcome {
        Outcome::DefiniteFail(error) => error.code,
        other => panic!("not a definite failure: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_wait_release_and_check() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, api, _) = start(dir.path()).await;
    let one = api
        .create_session(2000, "one", Some("jobs/a b"))
        .await
        .result()
        .unwrap()
        .session;
    let two = api
        .create_session(2000, "two", Some("jobs/a b"))
        .await
        .result()
        .unwrap()
        .session;
    let first = api
        .acquire("jobs/a b", &one, &wait(0))
        .await
        .result()
        .unwrap();
    assert_eq!(code(api.acquire("jobs/a b", &two, &wait(0)).await), "busy");
    assert_eq!(
        code(api.acquire("jobs/a b", &two, &wait(50)).await),
        "wait_timeout"
    );
    let waiting = tokio::spawn({
        let (api, two) = (api.clone(), two.clone());
        async move {
            (
                api.acquire("jobs/a b", &two, &wait(5000))
                    .await
                    .result()
                    .unwrap(),
                Instant::now(),
            )
        }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let info = api.show("jobs/a b").await.result().unwrap();
    assert_eq!((info.held, info.waiters), (true, 1));
    assert_eq!(
        code(api.release("jobs/a b", &two, first.token, None).await),
        "not_held"
    );
    let released = Instant::now();
    assert_eq!(
        api.release("jobs/a b", &one, first.token, None)
            .await
            .result()
            .unwrap(),
        0
    );
    let (second, woken) = waiting.await.unwrap();
    assert!(second.token > first.token);
    assert!(
        woken.duration_since(released) < Duration::from_millis(500),
        "woken by a push"
    );
    assert!(api.check("jobs/a b", second.token).await.result().unwrap());
    assert!(!api.check("jobs/a b", first.token).await.result().unwrap());
    assert_eq!(api.close(&two).await.result().unwrap(), 1);
    assert_eq!(code(api.keepalive(&two).await), "session_unknown");
    handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_session_expires_and_a_kept_one_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, api, endpoint) = start(dir.path()).await;
    let silent = api
        .create_session(300, "silent", None)
        .await
        .result()
        .unwrap()
        .session;
    api.acquire("a", &silent, &wait(0)).await.result().unwrap();
    let begun = Instant::now();
    let options = ClientOptions {
        ttl: Duration::from_millis(400),
        ..ClientOptions::default()
    };
    let client = Client::new(&[endpoint], options).unwrap();
    let guard = client
        .lock("a", Mode::Exclusive, Duration::from_secs(5))
        .await
        .unwrap();
    let waited = begun.elapsed();
    assert!(
        waited > Duration::from_millis(200) && waited < Duration::from_secs(2),
        "{waited:?}"
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(guard.is_valid(), "kept alive beyond its TTL");
    assert!(guard.release().await.unwrap());
    // The server gone: the guard's deadline fires by itself.
    let guard = client
        .lock("b", Mode::Exclusive, Duration::ZERO)
        .await
        .unwrap();
    handle.stop().await;
    tokio::time::timeout(Duration::from_secs(3), guard.lost())
        .await
        .unwrap();
    assert!(!guard.is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_survive_a_restart_and_tokens_rise() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, api, _) = start(dir.path()).await;
    let info = api
        .create_session(60_000, "one", None)
        .await
        .result()
        .unwrap();
    let grant = api
        .acquire("a", &info.session, &wait(0))
        .await
        .result()
        .unwrap();
    handle.stop().await;
    let (handle, api, _) = start(dir.path()).await;
    assert!(api.check("a", grant.token).await.result().unwrap());
    let alive = api.keepalive(&info.session).await.result().unwrap();
    assert!(alive.epoch > info.epoch, "a new leader raises the epoch");
    let stale = AcquireOptions {
        epoch: Some(info.epoch),
        ..wait(0)
    };
    assert_eq!(
        code(api.acquire("b", &info.session, &stale).await),
        "stale_epoch"
    );
    api.release("a", &info.session, grant.token, None)
        .await
        .result()
        .unwrap();
    assert!(
        api.acquire("a", &info.session, &wait(0))
            .await
            .result()
            .unwrap()
            .token
            > grant.token
    );
    handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_requests_get_typed_errors() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, api, _) = start(dir.path()).await;
    assert_eq!(code(api.keepalive("nonsense").await), "bad_request");
    assert_eq!(
        code(api.acquire("a", "0123456789abcdef", &wait(0)).await),
        "wrong_group"
    );
    assert_eq!(
        code(api.acquire("a", "0023456789abcdef", &wait(0)).await),
        "session_unknown"
    );
    assert_eq!(
        code(
            api.acquire(&"x".repeat(600), "0023456789abcdef", &wait(0))
                .await
        ),
        "bad_request"
    );
    assert_eq!(
        code(api.acquire("a//b", "0023456789abcdef", &wait(0)).await),
        "bad_request"
    );
    let (first, _) = Stream::connect(&format!("http://{}", handle.addr()))
        .await
        .unwrap();
    // A URL with such a part is another one's: the client library would ask for `b`.
    for name in ["a/../b", "./b", "a/..", "..", "a/./b"] {
        assert_eq!(code(api.show(name).await), "bad_request", "{name}");
        assert_eq!(code(api.check(name, 1).await), "bad_request", "{name}");
        assert_eq!(code(first.show(name).await), "bad_request", "{name}");
    }
    assert!(
        api.show("a/...").await.ok().is_some(),
        "it is a name like others"
    );
    let http = Security::default().http(None).unwrap();
    for namespace in ["", "a/b", "..", "\u{1}", &"x".repeat(513)] {
        let asked = http.post(format!("http://{}/v1/sessions", handle.addr()));
        let body = serde_json::json!({ "namespace": namespace });
        let answer = asked.json(&body).send().await.unwrap();
        assert_eq!(answer.status(), 400, "no lock is of {namespace:?}");
    }
    handle.stop().await;
}

/// A session and a request under this id.
fn numbered(id: u64, ms: u64) -> AcquireOptions {
    AcquireOptions {
        request_id: Some(id),
        ..wait(ms)
    }
}

async fn session(api: &Api) -> String {
    let opened = api.create_session(5000, "test", Some("a")).await;
    opened.result().unwrap().session
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_is_asked_for_again_is_answered_even_if_it_says_not_to_wait() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, api, _) = start(dir.path()).await;
    let (one, two) = (session(&api).await, session(&api).await);
    let held = api.acquire("a", &one, &wait(0)).await.result().unwrap();
    let ask = |ms| {
        let (api, two) = (api.clone(), two.clone());
        tokio::spawn(async move { api.acquire("a", &two, &numbered(7, ms)).await })
    };
    let waiting = ask(4000);
    while api.show("a").await.result().unwrap().waiters == 0 {}
    let again = ask(0);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!again.is_finished(), "{:?}", again.await);
    api.release("a", &one, held.token, None)
        .await
        .result()
        .unwrap();
    let first = waiting.await.unwrap().result().unwrap();
    assert_eq!(again.await.unwrap().result().unwrap(), first);
    handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_id_of_another_operation_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, api, _) = start(dir.path()).await;
    let one = session(&api).await;
    let held = api.acquire("a", &one, &numbered(1, 0)).await;
    let token = held.result().unwrap().token;
    let release = async |id| api.release("a", &one, token, Some(id)).await;
    assert_eq!(code(release(1).await), "request_reused");
    assert_eq!(release(2).await.result().unwrap(), 0);
    assert_eq!(
        code(api.acquire("a", &one, &numbered(2, 0)).await),
        "request_reused"
    );
    handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_cannot_be_reached_is_said_with_the_reason() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = nobody.local_addr().unwrap().to_string();
    drop(nobody);
    let api = Api::new(&[addr], Duration::from_secs(1)).unwrap();
    let why = api.show("a").await.result().unwrap_err().to_string();
    assert!(why.contains("refused"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_whose_log_is_gone_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, ..) = start(dir.path()).await;
    handle.stop().await;
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "seg") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let config = Config::single("127.0.0.1:0".parse().unwrap(), dir.path().to_owned());
    let why = serve(config).await.err().map(|error| error.to_string());
    assert!(
        why.as_ref()
            .is_some_and(|why| why.contains("its log is gone")),
        "{why:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_waits_for_a_node_as_it_waits_for_a_lock() {
    let dir = tempfile::tempdir().unwrap();
    let nobody: Vec<String> = (0..3)
        .map(|_| {
            let free = std::net::TcpListener::bind("127.0.41.1:0").unwrap();
            free.local_addr().unwrap().to_string()
        })
        .collect();
    let client = Client::new(&nobody, ClientOptions::default()).unwrap();
    let lock = async |client: &Client, wait| client.lock("a", Mode::Exclusive, wait).await;
    let begun = Instant::now();
    assert!(lock(&client, Duration::from_millis(300)).await.is_err());
    assert!(begun.elapsed() > Duration::from_millis(300));
    let waiting = tokio::spawn(async move { lock(&client, Duration::from_secs(20)).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let config = Config::single(nobody[2].parse().unwrap(), dir.path().to_owned());
    let handle = serve(config).await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    guard.release().await.unwrap();
    let client = Client::new(&nobody, ClientOptions::default()).unwrap();
    lock(&client, Duration::ZERO).await.unwrap();
    handle.stop().await;
}

/// Waits until so many wait for a lock.
async fn queue_of(api: &Api, name: &str, waiters: u64) {
    for _ in 0..200 {
        if api.show(name).await.result().unwrap().waiters == waiters {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not {waiters} waiters: {:?}", api.show(name).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_up_a_wait_leaves_the_queue() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, api, endpoint) = start(dir.path()).await;
    let client = Client::new(&[endpoint], ClientOptions::default()).unwrap();
    let long = Duration::from_secs(60);
    let guard = client.lock("a", Mode::Exclusive, long).await.unwrap();
    let given_up = client.lock("a", Mode::Exclusive, long);
    let given_up = tokio::time::timeout(Duration::from_millis(200), given_up);
    given_up.await.unwrap_err();
    queue_of(&api, "a", 0).await;
    // The same over a stream, with the calls themselves.
    let base = format!("http://{}", handle.addr());
    let (stream, _events) = Stream::connect(&base).await.unwrap();
    let info = stream.create_session(5000, "t", "a").await;
    let session = info.result().unwrap().session;
    let ask = AcquireOptions {
        request_id: Some(5),
        ..wait(60_000)
    };
    let waiting = tokio::spawn({
        let (stream, session, ask) = (stream.clone(), session.clone(), ask.clone());
        async move { stream.acquire("a", &session, &ask).await }
    });
    queue_of(&api, "a", 1).await;
    let undone = stream.withdraw("a", &session, 5).await.result();
    assert_eq!(undone.unwrap(), Undone::Waiting);
    assert_eq!(code(waiting.await.unwrap()), "wait_timeout");
    assert_eq!(code(stream.acquire("a", &session, &ask).await), "withdrawn");
    let undone = api.withdraw("a", &session, 6).await.result();
    assert_eq!(undone.unwrap(), Undone::Unknown);
    // One that was granted is given back.
    assert!(guard.release().await.unwrap());
    let ask = AcquireOptions {
        request_id: Some(7),
        ..wait(0)
    };
    stream.acquire("a", &session, &ask).await.result().unwrap();
    let undone = api.withdraw("a", &session, 7).await.result();
    assert_eq!(undone.unwrap(), Undone::Held);
    assert!(!api.show("a").await.result().unwrap().held);
    assert_eq!(
        code(api.withdraw("a", &session, u64::MAX).await),
        "bad_request"
    );
    handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_takes_its_lock_again() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, api, endpoint) = start(dir.path()).await;
    let client = Client::new(&[endpoint], ClientOptions::default()).unwrap();
    let mode = Mode::Exclusive;
    let outer = client.lock_as("me", "a", mode, Duration::ZERO).await;
    let outer = outer.unwrap();
    let inner = client.lock_as("me", "a", mode, Duration::ZERO).await;
    let inner = inner.unwrap();
    assert_eq!(inner.fence(), outer.fence());
    let other = client.lock_as("you", "a", mode, Duration::ZERO).await;
    assert_eq!(other.unwrap_err().code, "busy");
    assert!(inner.release().await.unwrap());
    assert!(api.check("a", outer.fence()).await.result().unwrap());
    assert!(outer.release().await.unwrap());
    let other = client.lock_as("you", "a", mode, Duration::ZERO).await;
    assert!(other.is_ok());
    handle.stop().await;
}
