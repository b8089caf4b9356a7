#![allow(clippy::unwrap_used)]
//! Workers of others: what they do wrong is named, and what was recorded before is kept.

mod common;

use common::*;

const SHORT: &str = "about = \"a worker that misbehaves\"\nsystem = \"noop\"\nworkers = 1\nclients = 1\n\
                     timeout = \"300ms\"\n[load]\nrate = 20.0\nwait = \"0s\"\nwork = \"0s\"\nduration = \"30s\"\n[store]\nkind = \"none\"\n";

fn misbehaves(how: &str, wanted: &str) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("short.toml"), SHORT).unwrap();
    let worker = format!(
        "sh {} {how}",
        repo("harness/tests/workers/odd.sh").display()
    );
    let out = command(dir.path(), "run short.toml --out run --worker")
        .arg(worker)
        .output()
        .unwrap();
    assert_eq!(code(&out), 3, "{how}: {}", told(&out));
    let run = dir.path().join("run");
    let meta = json(&run.join("run.json"));
    let failure = meta["failure"].as_str().unwrap_or_default();
    assert!(failure.starts_with(wanted), "{how}: {failure}");
    let events = history(&run);
    let acquires = events
        .iter()
        .filter(|e| e["f"] == "acquire" && e["type"] == "invoke")
        .count();
    assert!(acquires >= 3, "{how}: the history up to there is kept");
    assert_eq!(
        events.last().unwrap()["value"]["phase"],
        "end",
        "{how}: the run ended in order"
    );
    assert!(run.join("verdict.json").is_file(), "{how}: and was judged");
    nothing_left(&run);
}

#[test]
fn rubbish() {
    misbehaves("rubbish", "worker:0 printed line");
}

#[test]
fn an_answer_given_twice() {
    misbehaves("twice", "worker:0 answered request");
}

#[test]
fn an_answer_to_nothing() {
    misbehaves("unasked", "worker:0 speaks of request 999999 at line");
}

#[test]
fn a_worker_that_dies() {
    misbehaves(
        "dies",
        "worker:0 died: exit status: 7; the last line it printed was line",
    );
}

#[test]
fn a_worker_that_hangs() {
    misbehaves("hangs", "worker:0 did not answer request");
}

#[test]
fn the_python_client_is_driven_through_the_whole_harness() {
    if !have(&["python3", "redis-server"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let worker = format!(
        "python3 {}",
        repo("examples/workers/redis_lock.py").display()
    );
    let line = "run kleppmann-pause --system redis --seed 5 --out run --worker";
    let out = command(dir.path(), line).arg(worker).output().unwrap();
    assert_eq!(code(&out), 0, "{}", told(&out));
    assert_eq!(
        verdict(&dir.path().join("run"), "stale-fence-accepted"),
        "violated"
    );
}
