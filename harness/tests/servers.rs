#![allow(clippy::unwrap_used)]
//! A server that ends by itself is a finding, also where the others serve on.

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::*;

const CHECK: &str = "servers-run-on";

/// What the check says of a run that must have come out violated by it.
fn found(dir: &Path, output: &std::process::Output) -> String {
    assert_eq!(code(output), 1, "{}", told(output));
    let run = dir.join("run");
    let checks = json(&run.join("verdict.json"))["checks"].clone();
    assert_eq!(checks[CHECK]["verdict"], "violated", "{}", told(output));
    nothing_left(&run);
    checks[CHECK]["reason"].as_str().unwrap().to_owned()
}

#[test]
fn one_of_three_that_dies_is_found_though_a_majority_serves_on() {
    let dir = tempfile::tempdir().unwrap();
    let line = "run healthy --param nodes=3 --seed 1 --out run";
    let child = start(dir.path(), line);
    let run = dir.path().join("run");
    let victim = server(&run, "--id=2");
    wait_for_load(&run);
    let pid = nix::unistd::Pid::from_raw(victim);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    let reason = found(dir.path(), &child.wait_with_output().unwrap());
    let how = "node:1 (raftlock-1) ended by itself at ";
    assert!(reason.starts_with(how), "{reason}");
    assert!(reason.contains("signal: 9 (SIGKILL); its log "), "{reason}");
    assert_eq!(verdict(&run, "double-holder.service"), "holds");
}

#[test]
fn one_that_exits_is_told_with_its_status_and_its_last_words() {
    let Some(redis) = find("redis-server") else {
        return println!("skipped: no redis-server");
    };
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let script =
        format!("#!/bin/sh\ntimeout 6 {redis} \"$@\"\necho it was tired\necho and left\nexit 7\n");
    let program = bin.join("redis-server");
    std::fs::write(&program, script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    let path = std::env::var("PATH").unwrap();
    let output = command(dir.path(), "run healthy --system redis --seed 1 --out run")
        .env("PATH", format!("{}:{path}", bin.display()))
        .output()
        .unwrap();
    let reason = found(dir.path(), &output);
    assert!(
        reason.starts_with("node:0 (redis-0) ended by itself"),
        "{reason}"
    );
    assert!(
        reason.contains("exit status: 7; its log ends: "),
        "{reason}"
    );
    assert!(reason.ends_with("it was tired | and left"), "{reason}");
}

#[test]
fn one_that_a_fault_ends_or_may_end_is_none() {
    for line in ["service-down --seed 1", "node-rolled-back --seed 1"] {
        let dir = tempfile::tempdir().unwrap();
        let out = fencepost(dir.path(), &format!("run {line} --out run"));
        assert_eq!(code(&out), 0, "{line}: {}", told(&out));
        assert_eq!(verdict(&dir.path().join("run"), CHECK), "holds", "{line}");
    }
}

#[test]
fn a_full_disk_ends_the_server_over_it_and_the_others_serve_on() {
    let dir = tempfile::tempdir().unwrap();
    let out = fencepost(dir.path(), "run disk-full --seed 1 --out run");
    assert_eq!(code(&out), 0, "{}", told(&out));
    let run = dir.path().join("run");
    let checks = json(&run.join("verdict.json"))["checks"].clone();
    assert_eq!(checks[CHECK]["verdict"], "holds", "{}", told(&out));
    let reason = checks[CHECK]["reason"].as_str().unwrap();
    // By itself, not by a signal.
    let ended = "ended, as fault disk may end it: exit status: ";
    assert!(reason.contains(ended), "{reason}");
    assert_eq!(verdict(&run, "available"), "holds");
}

fn find(program: &str) -> Option<String> {
    let path = std::env::var_os("PATH")?;
    let mut all = std::env::split_paths(&path).map(|d| d.join(program));
    Some(all.find(|p| p.is_file())?.display().to_string())
}

/// The pid of the run's process that has this argument.
fn server(run: &Path, argument: &str) -> i32 {
    let marked = || {
        let text = std::fs::read_to_string(run.join("run.json")).ok()?;
        let json: serde_json::Value = serde_json::from_str(&text).ok()?;
        let mark = format!("FENCEPOST_RUN={}", json["run_id"].as_str()?);
        let has = |file: &Path, wanted: &str| {
            let bytes = std::fs::read(file).unwrap_or_default();
            bytes
                .split(|b| *b == 0)
                .any(|word| word == wanted.as_bytes())
        };
        let ours = |dir: &std::path::PathBuf| {
            has(&dir.join("environ"), &mark) && has(&dir.join("cmdline"), argument)
        };
        let mut all = std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .map(|e| e.path());
        all.find(ours)?.file_name()?.to_str()?.parse().ok()
    };
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(pid) = marked() {
            return pid;
        }
        assert!(Instant::now() < end, "no process with {argument}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
