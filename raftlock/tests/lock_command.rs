//! `raftlock lock NAME -- COMMAND`: what becomes of the command, of its descendants and of the lock.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Server, eventually};
use raftlock_client::Api;

/// `raftlock lock job …` at this server.
fn lock(server: &Server, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_raftlock"));
    command
        .args(["lock", "job", "--endpoints", &server.addr.to_string()])
        .args(args)
        .env("RUST_LOG", "error")
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    command
}

fn output(server: &Server, args: &[&str]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = lock(server, args).stdout(Stdio::piped()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

async fn held(server: &Server) -> (bool, u64) {
    let api = Api::new(&[server.url()], Duration::from_secs(5)).unwrap();
    let lock = api.show("job").await.result().unwrap();
    (lock.held, lock.waiters)
}

/// The pid that a command wrote to a file.
async fn pid_in(file: &Path) -> i32 {
    eventually("a pid", async || {
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    })
    .await
}

/// Gone, or a zombie that nobody has reaped yet.
fn is_over(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| {
        stat.rsplit(") ").next().unwrap().starts_with('Z')
    })
}

async fn over(pid: i32) {
    eventually("its end", async || is_over(pid).then_some(())).await;
}

fn signal(pid: u32, name: &str) {
    let done = Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .status();
    assert!(done.unwrap().success());
}

/// Its end, at most so much later.
fn ends(mut child: Child, limit: Duration) -> Option<i32> {
    let until = Instant::now() + limit;
    while Instant::now() < until {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    panic!("it still runs after {limit:?}");
}

fn serve(dir: &Path) -> Server {
    Server::start(&["--listen", "127.0.0.1:0", "--data", dir.to_str().unwrap()])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_exit_status_is_the_commands_and_the_lock_is_free_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    let (code, said, _) = output(&server, &["--", "sh", "-c", "echo $RAFTLOCK_NAME; exit 7"]);
    assert_eq!((code, said.trim()), (Some(7), "job"));
    let (code, ..) = output(&server, &["--", "sh", "-c", "kill -KILL $$"]);
    assert_eq!((code, held(&server).await), (Some(128 + 9), (false, 0)));
    let (code, _, why) = output(&server, &["--", "/no/such/command"]);
    assert_eq!(
        (code, held(&server).await),
        (Some(127), (false, 0)),
        "{why}"
    );
    let (code, ..) = output(&server, &["--", "/etc/passwd"]);
    assert_eq!((code, held(&server).await), (Some(126), (false, 0)));
    let held_by = lock(&server, &["--", "sleep", "30"]).spawn().unwrap();
    eventually("held", async || held(&server).await.0.then_some(())).await;
    let (code, _, why) = output(&server, &["--wait-ms", "0", "--", "true"]);
    assert_eq!(code, Some(75));
    assert!(why.starts_with("raftlock: no lock on job: busy"), "{why}");
    signal(held_by.id(), "TERM");
    ends(held_by, Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_goes_to_the_command_and_the_lock_is_free_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    let file = dir.path().join("pid");
    let script = format!(
        "trap 'exit 5' TERM; echo $$ > {}; sleep 30 & wait",
        file.display()
    );
    let running = lock(&server, &["--", "sh", "-c", &script]).spawn().unwrap();
    let pid = pid_in(&file).await;
    // One that still waits leaves the queue.
    let waiting = lock(&server, &["--", "true"]).spawn().unwrap();
    eventually("it waits", async || {
        (held(&server).await.1 == 1).then_some(())
    })
    .await;
    signal(waiting.id(), "TERM");
    assert_eq!(ends(waiting, Duration::from_secs(5)), Some(128 + 15));
    assert_eq!(held(&server).await, (true, 0));
    signal(running.id(), "TERM");
    assert_eq!(ends(running, Duration::from_secs(5)), Some(5));
    assert!(is_over(pid));
    assert_eq!(held(&server).await, (false, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_does_not_outlive_who_keeps_its_lock() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    let file = dir.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 30", file.display());
    let mut running = lock(&server, &["--", "sh", "-c", &script]).spawn().unwrap();
    let pid = pid_in(&file).await;
    signal(running.id(), "KILL");
    running.wait().unwrap();
    over(pid).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_lock_goes_everything_that_the_command_started() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    let path = |name: &str| dir.path().join(name);
    let (child, orphan) = (path("child"), path("orphan"));
    let script = format!(
        "trap '' TERM; (sh -c 'echo $$ > {}; exec sleep 30' & ) ; sh -c 'echo $$ > {}; exec sleep 30'; true",
        orphan.display(),
        child.display()
    );
    let running = lock(&server, &["--ttl-ms", "1000", "--", "sh", "-c", &script])
        .spawn()
        .unwrap();
    let (child, orphan) = (pid_in(&child).await, pid_in(&orphan).await);
    server.signal("STOP");
    let code = ends(running, Duration::from_secs(10));
    server.signal("CONT");
    assert_eq!(code, Some(76));
    over(child).await;
    over(orphan).await;
}
