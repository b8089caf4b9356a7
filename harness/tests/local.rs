#![allow(clippy::unwrap_used)]
//! Whole runs on this machine with nothing installed.

mod common;

use std::time::{Duration, Instant};

use common::*;

#[test]
fn the_kleppmann_pause_is_reproduced_on_the_embedded_default() {
    let dir = tempfile::tempdir().unwrap();
    let out = fencepost(dir.path(), "run kleppmann-pause --seed 1 --out run");
    assert_eq!(code(&out), 0, "{}", told(&out));
    let run = dir.path().join("run");
    for check in [
        "stale-fence-accepted",
        "lost-update",
        "lease-overrun",
        "double-holder.limit",
    ] {
        assert_eq!(verdict(&run, check), "violated", "{check}");
    }
    assert_eq!(verdict(&run, "double-holder.service"), "holds");
    let text = stdout(&out);
    assert!(
        text.contains("what happened") && text.contains("report.html"),
        "{text}"
    );
    for file in [
        "run.json",
        "history.jsonl",
        "schedule.jsonl",
        "store.jsonl",
        "verdict.json",
        "report.html",
        "latency.json",
    ] {
        assert!(run.join(file).is_file(), "{file}");
    }
    let meta = json(&run.join("run.json"));
    assert_eq!(
        (meta["status"].as_str(), meta["seed"].as_u64()),
        (Some("complete"), Some(1))
    );
    pause_happened_as_told(&run);
    judged_again_is_the_same(dir.path());
    nothing_left(&run);
}

/// Point, state T, go, another's write, heal, late write: in this order.
fn pause_happened_as_told(run: &std::path::Path) {
    let events = history(run);
    let at = |what: &str, found: &dyn Fn(&serde_json::Value) -> bool| {
        events
            .iter()
            .position(found)
            .unwrap_or_else(|| panic!("no {what}"))
    };
    let fault = |action: &'static str, status: &'static str| {
        at(status, &|e| {
            e["f"] == "fault" && e["value"]["action"] == action && e["value"]["status"] == status
        })
    };
    let reached = at("point", &|e| {
        e["f"] == "point" && e["value"]["state"] == "reached"
    });
    let go = at("go", &|e| e["f"] == "point" && e["value"]["state"] == "go");
    let (stopped, woken) = (fault("install", "installed"), fault("heal", "started"));
    let receipt = events[stopped]["value"]["receipt"].to_string();
    assert!(receipt.contains("\"T\""), "{receipt}");
    let process = &events[reached]["value"]["process"];
    let late = go
        + at_from(&events[go..], &|e| {
            e["process"] == *process && e["f"] == "write" && e["type"] == "ok"
        });
    assert!(reached < stopped && stopped < go && go < woken && woken < late);
    let other = |e: &serde_json::Value| {
        e["f"] == "write" && e["type"] == "ok" && e["key"] == "story" && e["process"] != *process
    };
    assert!(
        events[go..woken].iter().any(other),
        "the rival's write was acknowledged before the first woke"
    );
}

fn at_from(events: &[serde_json::Value], found: &dyn Fn(&serde_json::Value) -> bool) -> usize {
    events
        .iter()
        .position(found)
        .expect("the late write was answered")
}

fn judged_again_is_the_same(dir: &std::path::Path) {
    let first = std::fs::read(dir.join("run/verdict.json")).unwrap();
    let again = fencepost(dir, "check run");
    assert_eq!(code(&again), 0, "{}", told(&again));
    assert_eq!(std::fs::read(dir.join("run/verdict.json")).unwrap(), first);
    let copy = dir.join("elsewhere");
    std::fs::create_dir(&copy).unwrap();
    for file in ["run.json", "history.jsonl", "store.jsonl"] {
        std::fs::copy(dir.join("run").join(file), copy.join(file)).unwrap();
    }
    fencepost(dir, "check elsewhere");
    assert_eq!(std::fs::read(copy.join("verdict.json")).unwrap(), first);
}

#[test]
fn a_store_that_checks_fences_refuses_the_late_write() {
    let dir = tempfile::tempdir().unwrap();
    let out = fencepost(dir.path(), "run kleppmann-pause-fenced --seed 2 --out run");
    assert_eq!(code(&out), 0, "{}", told(&out));
    let refused = |e: &serde_json::Value| {
        e["f"] == "write" && e["type"] == "fail" && e["error"] == "stale-fence"
    };
    assert!(history(&dir.path().join("run")).iter().any(refused));
}

#[test]
fn fail_fast_ends_at_the_first_violation_that_is_not_allowed() {
    let limits = "[expect]\ndouble-holder.limit = \"any\"\nlease-overrun = \"any\"\n";
    let but = |check: &str| format!("{limits}{check} = \"any\"\n");
    ends_early(&but("stale-fence-accepted"), "lost-update");
    // What only the store's own log shows.
    ends_early(&but("lost-update"), "stale-fence-accepted");
}

/// The pause of the main scenario, in a run of two minutes that does not expect all of its damage.
fn ends_early(expect: &str, check: &str) {
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(repo("scenarios/kleppmann-pause.toml")).unwrap();
    let (body, _) = text.split_once("[expect]").unwrap();
    let body = body.replace("duration = \"8s\"", "duration = \"120s\"");
    std::fs::write(dir.path().join("own.toml"), format!("{body}{expect}")).unwrap();
    let out = fencepost(dir.path(), "run own.toml --seed 5 --out run --fail-fast");
    assert_eq!(code(&out), 1, "{}", told(&out));
    let said = format!("(fail_fast): {check} is violated");
    assert!(stdout(&out).contains(&said), "{}", told(&out));
    let run = dir.path().join("run");
    assert_eq!(verdict(&run, check), "violated");
    assert_eq!(json(&run.join("run.json"))["status"], "complete");
    let events = history(&run);
    let at = |phase: &str| {
        let found = |e: &serde_json::Value| e["f"] == "phase" && e["value"]["phase"] == phase;
        events
            .iter()
            .position(found)
            .unwrap_or_else(|| panic!("no {phase}"))
    };
    assert_eq!(events[at("fail-fast")]["value"]["check"], check);
    assert!(at("fail-fast") < at("faults-end") && at("healed") < at("end"));
    let healed = |e: &&serde_json::Value| e["f"] == "fault" && e["value"]["status"] == "healed";
    assert_eq!(events.iter().filter(healed).count(), 1);
    let load = events[at("drain")]["time"].as_i64().unwrap();
    assert!(load < 60_000_000_000, "of 120 s of load");
    nothing_left(&run);
}

/// A25 of the known bugs is a worker's, whatever the service: its twin is the control run, `healthy`.
#[test]
fn work_that_goes_on_after_the_release_loses_updates() {
    let dir = tempfile::tempdir().unwrap();
    let seeded = "run healthy --seed 7 --out seeded --param bug=A25 --fail-fast";
    let out = fencepost(dir.path(), seeded);
    assert_eq!(code(&out), 1, "{}", told(&out));
    assert_eq!(
        verdict(&dir.path().join("seeded"), "lost-update"),
        "violated"
    );
    let out = fencepost(dir.path(), "run healthy --seed 7 --out twin --fail-fast");
    assert_eq!(code(&out), 0, "{}", told(&out));
    assert_eq!(verdict(&dir.path().join("twin"), "lost-update"), "holds");
}

#[test]
fn ctrl_c_ends_in_order_keeps_and_judges() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = start(dir.path(), "run healthy --seed 3 --out run --json");
    wait_for_load(&dir.path().join("run"));
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(child.id() as i32),
        nix::sys::signal::Signal::SIGINT,
    )
    .unwrap();
    let began = Instant::now();
    let status = child.wait().unwrap();
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(status.code(), Some(130));
    let run = dir.path().join("run");
    assert_eq!(json(&run.join("run.json"))["status"], "interrupted");
    assert!(
        history(&run)
            .iter()
            .any(|e| e["f"] == "phase" && e["value"]["phase"] == "interrupted")
    );
    assert!(run.join("verdict.json").is_file());
    nothing_left(&run);
}

#[test]
fn a_controller_that_was_killed_leaves_a_folder_that_can_be_judged_and_no_process() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = start(dir.path(), "run healthy --seed 4 --out run");
    let run = dir.path().join("run");
    wait_for_load(&run);
    child.kill().unwrap();
    child.wait().unwrap();
    let out = fencepost(dir.path(), "check run");
    assert_eq!(code(&out), 3, "{}", told(&out));
    assert!(!verdict(&run, "double-holder.service").is_empty());
    std::thread::sleep(Duration::from_millis(300));
    nothing_left(&run);
}
