//! A full disk: the replica does not start, or stops, and says why. On a small tmpfs in a mount namespace of its own.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn namespaces() -> bool {
    let probe = Command::new("unshare")
        .args(["-rm", "mount", "-t", "tmpfs", "none", "/mnt"])
        .stderr(Stdio::null())
        .status();
    let able = probe.is_ok_and(|status| status.success());
    if !able {
        println!("skipped: no mount namespace of our own to be had here");
    }
    able
}

/// Runs `script` with `$D`, a data directory on a tmpfs of that size; `$G`, a directory outside; and `$R`, the program.
fn on_a_small_disk(size: &str, outside: &Path, script: &str) -> Child {
    let data = outside.join("data");
    std::fs::create_dir(&data).unwrap();
    Command::new("unshare")
        .args(["-rm", "sh", "-c"])
        // Not `&&`: before a part in the background the mount would go there too, and come under a replica that has begun.
        .arg(format!(
            "mount -t tmpfs -o size={size} none \"$D\" || exit; {script}"
        ))
        .env("D", &data)
        .env("G", outside)
        .env("R", env!("CARGO_BIN_EXE_raftlock"))
        .env("RUST_LOG", "error")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for the end of a process; what it said on stderr, if it failed.
fn failure_of(mut child: Child) -> String {
    let until = Instant::now() + Duration::from_secs(20);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > until {
            child.kill().unwrap();
            panic!("it goes on with a full disk");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert!(
        !status.success(),
        "it ended as if nothing were wrong: {said}"
    );
    said
}

#[test]
fn no_room_for_the_log_and_it_does_not_start() {
    if !namespaces() {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    let child = on_a_small_disk(
        "4m",
        outside.path(),
        "exec \"$R\" serve --listen 127.0.0.1:0 --data \"$D\"",
    );
    let said = failure_of(child);
    assert!(said.contains("No space left"), "{said}");
}

#[test]
fn no_room_for_a_snapshot_and_it_stops() {
    if !namespaces() {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    // Bounded, and without the replica's pipes: a replica that does not start fails the test at once.
    let script = "{ for i in $(seq 400); do test -e \"$G/go\" && ! test -e \"$D/spare\" && break; sleep 0.05; done; head -c 40m /dev/zero > \"$D/fill\"; touch \"$G/full\"; } >/dev/null 2>&1 & \
                  exec \"$R\" serve --listen 127.0.0.1:0 --data \"$D\"";
    let mut child = on_a_small_disk("24m", outside.path(), script);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let Some(Ok(line)) = lines.next() else {
        panic!("it did not start: {}", failure_of(child));
    };
    let addr = line.strip_prefix("listening on ").unwrap();
    std::fs::write(outside.path().join("go"), "").unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while !outside.path().join("full").exists() {
        assert!(Instant::now() < until, "the disk did not become full");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut stream = TcpStream::connect(addr).unwrap();
    let request =
        format!("POST /v1/admin/snapshot HTTP/1.1\r\nhost: {addr}\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let said = failure_of(child);
    assert!(said.contains("No space left"), "{said}");
}
