//! Namespaces, bearer tokens, TLS towards clients and between replicas: real servers on loopback.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{certificates, peers, wait};
use raftlock::config::{ClientTls, Namespace, PeerTls};
use raftlock::{Config, Handle, serve};
use raftlock_client::{
    AcquireOptions, Api, Client, ClientOptions, Mode, Outcome, Security, Stream,
};

const JOBS: &str = "token-of-the-jobs-team";
const ORDERS: &str = "token-of-the-orders-team";
const ADMIN: &str = "token-of-an-administrator";

fn namespace(token: &str) -> Namespace {
    Namespace {
        tokens: vec![token.to_owned()],
        ..Namespace::default()
    }
}

fn lone(dir: &Path) -> Config {
    let mut config = Config::single("127.0.0.1:0".parse().unwrap(), dir.join("data"));
    config.admin_tokens = vec![ADMIN.to_owned()];
    config.namespaces.insert("jobs".to_owned(), namespace(JOBS));
    config
        .namespaces
        .insert("orders".to_owned(), namespace(ORDERS));
    config
}

fn api(handle: &Handle, token: &str, ca: Option<PathBuf>) -> Api {
    let security = Security {
        token: (!token.is_empty()).then(|| token.to_owned()),
        ca,
    };
    Api::secured(
        &[handle.addr().to_string()],
        Duration::from_secs(5),
        security,
    )
    .unwrap()
}

fn code<T: std::fmt::Debug>(outcome: Outcome<T>) -> String {
    outcome.result().unwrap_err().code
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_opens_its_namespace_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let handle = serve(lone(dir.path())).await.unwrap();
    let url = format!("http://{}", handle.addr());
    let jobs = api(&handle, JOBS, None);
    let session = jobs
        .create_session(5000, "", Some("jobs/a"))
        .await
        .result()
        .unwrap();
    let grant = jobs
        .acquire("jobs/a", &session.session, &AcquireOptions::default())
        .await
        .result()
        .unwrap();
    assert_eq!(
        code(api(&handle, "", None).show("jobs/a").await),
        "unauthenticated"
    );
    assert_eq!(
        code(
            api(&handle, "a-token-nobody-has", None)
                .show("jobs/a")
                .await
        ),
        "unauthenticated"
    );
    let orders = api(&handle, ORDERS, None);
    assert_eq!(code(orders.show("jobs/a").await), "forbidden");
    assert_eq!(code(orders.keepalive(&session.session).await), "forbidden");
    assert_eq!(code(orders.close(&session.session).await), "forbidden");
    let release = orders
        .release("jobs/a", &session.session, grant.token, None)
        .await;
    assert_eq!(code(release), "forbidden");
    let stray = jobs
        .acquire("orders/a", &session.session, &AcquireOptions::default())
        .await;
    assert_eq!(code(stray), "forbidden");
    let admin = api(&handle, ADMIN, None);
    let crossing = admin
        .acquire("orders/a", &session.session, &AcquireOptions::default())
        .await;
    assert_eq!(code(crossing), "other_namespace");
    assert_eq!(code(admin.show("elsewhere/a").await), "no_namespace");
    assert!(jobs.check("jobs/a", grant.token).await.result().unwrap());

    // The stream asks for the same token and keeps to the same namespaces.
    assert!(Stream::connect(&url).await.is_err());
    let (stream, _events) = Stream::connect_secured(&url, orders.security())
        .await
        .unwrap();
    assert_eq!(code(stream.show("jobs/a").await), "forbidden");
    assert_eq!(code(stream.close(&session.session).await), "forbidden");
    assert!(stream.show("orders/a").await.result().is_ok());

    // Health is for everybody, tending for administrators.
    let status = async |token: &str, path: &str| {
        let security = Security {
            token: Some(token.to_owned()),
            ca: None,
        };
        let http = security.http(None).unwrap();
        let url = format!("{url}{path}");
        let asked = if path.contains("admin") {
            http.post(url)
        } else {
            http.get(url)
        };
        asked.send().await.unwrap().status().as_u16()
    };
    assert_eq!(status("none", "/healthz").await, 200);
    assert_eq!(status("none", "/metrics").await, 401);
    assert_eq!(status(JOBS, "/v1/admin/snapshot").await, 403);
    assert_eq!(status(ADMIN, "/v1/admin/snapshot").await, 200);
    handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_has_its_own_limits() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = lone(dir.path());
    let limited = Namespace {
        max_ttl_ms: Some(3_000),
        default_ttl_ms: Some(2_000),
        lock_delay_ms: Some(600),
        max_waiters: Some(1),
        ops_per_s: Some(20),
        ..namespace(JOBS)
    };
    config.namespaces.insert("jobs".to_owned(), limited);
    let handle = serve(config).await.unwrap();
    let jobs = api(&handle, JOBS, None);
    let open = async |ttl| {
        jobs.create_session(ttl, "", Some("jobs/a"))
            .await
            .result()
            .unwrap()
    };
    let (first, dying) = (open(60_000).await, open(200).await);
    assert_eq!((first.ttl_ms, dying.ttl_ms), (3_000, 200));
    let wait = wait(2_500);
    jobs.acquire("jobs/a", &dying.session, &wait)
        .await
        .result()
        .unwrap();
    let (one, two) = tokio::join!(jobs.acquire("jobs/a", &first.session, &wait), async {
        tokio::time::sleep(Duration::from_millis(60)).await;
        jobs.acquire("jobs/a", &first.session, &wait).await
    });
    assert_eq!(code(two), "queue_full");
    assert!(
        one.result().is_ok(),
        "granted once the dead holder's lock-delay is over"
    );
    let mut refused = None;
    for _ in 0..100 {
        if let Outcome::DefiniteFail(error) = jobs.show("jobs/a").await {
            refused = Some(error);
            break;
        }
    }
    let refused = refused.unwrap();
    assert_eq!(refused.code, "rate_limited");
    assert!(refused.retry_after_ms.unwrap() <= 50);
    assert!(
        jobs.keepalive(&first.session).await.result().is_ok(),
        "never refused for the rate"
    );
    assert!(
        api(&handle, ORDERS, None)
            .show("orders/a")
            .await
            .result()
            .is_ok()
    );
    handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_speak_tls_and_trust_one_authority_only() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, cert, key) = certificates(dir.path(), "clients", "127.0.0.1");
    let (stranger, ..) = certificates(dir.path(), "stranger", "127.0.0.1");
    let mut config = lone(dir.path());
    config.tls = Some(ClientTls { cert, key });
    let handle = serve(config).await.unwrap();
    let options = ClientOptions {
        security: Security {
            token: Some(JOBS.to_owned()),
            ca: Some(ca.clone()),
        },
        ..ClientOptions::default()
    };
    let endpoints = [handle.addr().to_string()];
    let client = Client::new(&endpoints, options.clone()).unwrap();
    let guard = client
        .lock("jobs/a", Mode::Exclusive, Duration::ZERO)
        .await
        .unwrap();
    assert!(guard.fence() > 0 && guard.release().await.unwrap());
    let url = format!("https://{}", handle.addr());
    let (stream, _events) = Stream::connect_secured(&url, &options.security)
        .await
        .unwrap();
    assert!(stream.show("jobs/a").await.result().is_ok());
    assert_eq!(
        code(api(&handle, JOBS, Some(stranger)).show("jobs/a").await),
        "connect"
    );
    assert!(
        api(&handle, JOBS, None)
            .show("jobs/a")
            .await
            .result()
            .is_err(),
        "no plain HTTP"
    );
    client.close().await;
    handle.stop().await;
}

/// Where the replicas are.
const HOST: &str = "127.0.33.1";

/// A peer port's greeting, as a stranger without a certificate would try it.
async fn greets_plainly(addr: &str) -> bool {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut socket = tokio::net::TcpStream::connect(addr).await.unwrap();
    socket.write_all(&[4, 0, 0, 0, 2, 0, 0, 0]).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(6), socket.read_to_end(&mut answer));
    // What TLS says to that is an alert (record type 21), no frame of ours.
    read.await.is_ok() && !answer.is_empty() && answer[0] != 21
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_show_each_other_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let peers = peers(33, 3);
    let (ca, cert, key) = certificates(dir.path(), "peers", HOST);
    let (_, other_cert, other_key) = certificates(dir.path(), "others", HOST);
    let config = |id: u64, cert: &Path, key: &Path| Config {
        id,
        peers: peers.clone(),
        peer_tls: Some(PeerTls {
            cert: cert.to_owned(),
            key: key.to_owned(),
            ca: ca.clone(),
        }),
        ..Config::single(
            "127.0.0.1:0".parse().unwrap(),
            dir.path().join(id.to_string()),
        )
    };
    let first = serve(config(1, &cert, &key)).await.unwrap();
    // Signed by somebody else: not let in, so there is no majority.
    let stranger = serve(config(2, &other_cert, &other_key)).await.unwrap();
    assert!(
        !first.wait_ready(Duration::from_secs(2)).await,
        "a stranger helped to elect"
    );
    assert!(
        !greets_plainly(&peers[&1]).await,
        "the peer port answered without TLS"
    );
    stranger.stop().await;
    let second = serve(config(2, &cert, &key)).await.unwrap();
    assert!(
        first.wait_ready(Duration::from_secs(20)).await,
        "no leader with two of three"
    );
    let api = Api::new(
        &[first.addr().to_string(), second.addr().to_string()],
        Duration::from_secs(5),
    )
    .unwrap();
    let mut opened = None;
    for _ in 0..200 {
        opened = api.create_session(5000, "", Some("a")).await.ok();
        if opened.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let session = opened.unwrap().session;
    let grant = api.acquire("a", &session, &AcquireOptions::default()).await;
    assert!(grant.result().unwrap().token > 0);
    first.stop().await;
    second.stop().await;
}
