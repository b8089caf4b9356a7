//! What a running node reads anew (SIGHUP), and what a stop leaves behind.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{Server, certificates, eventually, hold, wait};
use raftlock::{Config, serve};
use raftlock_client::{Api, Event, Security, Stream};
use tokio::time::timeout;

const OLD: &str = "token-of-last-year-0001";
const NEW: &str = "token-of-this-year-0002";
const BOTH: &str = "token-of-both-years-0003";

fn security(token: &str, ca: &Path) -> Security {
    Security {
        token: Some(token.to_owned()),
        ca: Some(ca.to_owned()),
    }
}

async fn answers(server: &Server, token: &str, ca: &Path) -> Result<bool, String> {
    let endpoint = [server.addr.to_string()];
    let api = Api::secured(&endpoint, Duration::from_secs(5), security(token, ca)).unwrap();
    let shown = api.show("jobs/a").await.result();
    shown.map(|lock| lock.held).map_err(|error| error.code)
}

fn install(dir: &Path, made: &(PathBuf, PathBuf, PathBuf)) {
    std::fs::copy(&made.1, dir.join("cert.pem")).unwrap();
    std::fs::copy(&made.2, dir.join("key.pem")).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_namespaces_and_certificates_are_read_anew_on_a_hangup() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (first, second) = (
        certificates(dir.path(), "first", "127.0.0.1"),
        certificates(dir.path(), "second", "127.0.0.1"),
    );
    install(dir.path(), &first);
    let config = |more: &str| {
        let (cert, key, token) = (at("cert.pem"), at("key.pem"), at("token"));
        let text = format!(
            "listen = \"127.0.0.1:0\"\ndata = {:?}\n[tls]\ncert = {cert:?}\nkey = {key:?}\n\
             [namespaces.jobs]\ntokens = [{BOTH:?}]\ntoken_files = [{token:?}]\n{more}",
            at("data")
        );
        std::fs::write(at("node.toml"), text).unwrap();
    };
    std::fs::write(at("token"), OLD).unwrap();
    config("");
    let mut server = Server::start(&["--config", at("node.toml").to_str().unwrap()]);
    let url = format!("https://{}", server.addr);
    let (stream, mut events) = Stream::connect_secured(&url, &security(OLD, &first.0))
        .await
        .unwrap();
    let (kept, mut silent) = Stream::connect_secured(&url, &security(BOTH, &first.0))
        .await
        .unwrap();
    let (session, grant) = hold(&kept, "jobs/a", 60_000).await;
    assert_eq!(
        answers(&server, NEW, &first.0).await,
        Err("unauthenticated".to_owned())
    );

    std::fs::write(at("token"), NEW).unwrap();
    install(dir.path(), &second);
    server.signal("HUP");
    let taken = async || answers(&server, NEW, &second.0).await.ok();
    assert!(eventually("the new token and certificate count", taken).await);
    assert_eq!(
        answers(&server, OLD, &second.0).await,
        Err("unauthenticated".to_owned())
    );
    assert_eq!(
        answers(&server, NEW, &first.0).await,
        Err("connect".to_owned())
    );
    // The stream of a token that is none any more ends; the other's goes on, with its session and lock.
    let ended = timeout(Duration::from_secs(5), events.recv())
        .await
        .unwrap();
    assert_eq!(ended, None);
    assert!(stream.show("jobs/a").await.result().is_err());
    assert!(kept.check("jobs/a", grant.token).await.result().unwrap());
    assert!(kept.keepalive(&session).await.result().is_ok());
    assert!(silent.try_recv().is_err());

    // What cannot be taken over changes nothing.
    config("max_waiters = 0\n[namespaces.more]\nsafety = \"correctness\"\n");
    server.signal("HUP");
    let said = async || server.said().contains("fenced_resource").then_some(());
    eventually("it says what is wrong", said).await;
    config("[namespaces.more]\n[peers]\n");
    std::fs::write(
        at("node.toml"),
        std::fs::read_to_string(at("node.toml")).unwrap() + "1 = \"127.0.0.1:1\"\n",
    )
    .unwrap();
    server.signal("HUP");
    let said = async || {
        server
            .said()
            .contains("peers needs a restart")
            .then_some(())
    };
    eventually("it says what needs a restart", said).await;
    assert!(answers(&server, NEW, &second.0).await.unwrap());
    server.assert_sound();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_answers_what_waits_and_lets_the_directory_go() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::single("127.0.0.1:0".parse().unwrap(), dir.path().to_owned());
    let handle = serve(config).await.unwrap();
    let url = format!("http://{}", handle.addr());
    let (stream, mut events) = Stream::connect(&url).await.unwrap();
    let (_, _) = hold(&stream, "a", 60_000).await;
    let other = common::open(&stream, "a", 60_000).await;
    let api = Api::new(&[handle.addr().to_string()], Duration::from_secs(60)).unwrap();
    let (over_http, over_stream) = (api.clone(), stream.clone());
    let (one, two) = (other.clone(), other);
    let waits = [
        tokio::spawn(async move { over_http.acquire("a", &one, &wait(50_000)).await.result() }),
        tokio::spawn(async move { over_stream.acquire("a", &two, &wait(50_000)).await.result() }),
    ];
    let both = async || (stream.show("a").await.result().unwrap().1 == 2).then_some(());
    eventually("both wait", both).await;
    handle.stop().await;
    let lock = std::fs::File::open(dir.path().join("LOCK")).unwrap();
    assert!(lock.try_lock().is_ok(), "somebody still uses the directory");
    for wait in waits {
        let error = timeout(Duration::from_secs(5), wait)
            .await
            .unwrap()
            .unwrap()
            .unwrap_err();
        assert_eq!(error.code, "unknown_outcome");
    }
    let mut told = Vec::new();
    while let Some(event) = timeout(Duration::from_secs(5), events.recv())
        .await
        .unwrap()
    {
        told.push(event);
    }
    assert!(told.contains(&Event::Deposed), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_end_with_the_token_that_was_shown_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::single("127.0.0.1:0".parse().unwrap(), dir.path().to_owned());
    config.admin_tokens = vec![OLD.to_owned(), BOTH.to_owned()];
    let handle = serve(config.clone()).await.unwrap();
    let watch = async |token: &str| {
        let http = Security::default().http(None).unwrap();
        let asked = http.get(format!("http://{}/v1/events", handle.addr()));
        // The name of the scheme has no case.
        let asked = asked.header("authorization", format!("bearer {token}"));
        asked.send().await.unwrap().error_for_status().unwrap()
    };
    let (mut old, mut kept) = (watch(OLD).await, watch(BOTH).await);
    config.admin_tokens = vec![NEW.to_owned(), BOTH.to_owned()];
    handle.reload(&config).unwrap();
    let ended = timeout(Duration::from_secs(5), old.chunk()).await;
    assert_eq!(ended.expect("it goes on").unwrap(), None);
    let quiet = timeout(Duration::from_millis(200), kept.chunk()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    handle.stop().await;
}
