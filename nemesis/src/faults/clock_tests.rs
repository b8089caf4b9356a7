#![allow(clippy::unwrap_used)]
use std::process::{Command, Stdio};

use super::*;
use crate::receipt::Status;
use crate::testing::{Started, TestEnv, block_on, order};
use crate::vdso::image::Image;

pub(super) const N: ProcId = ProcId::Node(0);

pub(super) fn possible() -> bool {
    let s = Started::shell("sleep 600");
    let able = patch::supported().and_then(|()| readback::clocks(s.pid()).map(|_| ()));
    if let Err(r) = &able {
        eprintln!("skipped: {r}");
    }
    able.is_ok()
}

pub(super) async fn install(env: &TestEnv, p: &Proc, params: Value) -> Installed {
    let fault: Clock = serde_json::from_value(params).unwrap();
    let o = order("clock", "node:0", json!({}));
    let targets = std::slice::from_ref(p);
    fault.available(env, &o, targets).unwrap();
    fault.install(env, &o, targets).await
}

/// Processes that read the clock all the time, so that stops hit threads inside the vDSO.
fn busy() -> Started {
    let reads = "perl -MTime::HiRes=time -e 'while (1) { time }'";
    if have("perl") {
        return Started::shell(&format!("{reads} & {reads} & wait"));
    }
    Started::shell("sleep 600 & sleep 600 & wait")
}

fn every_shape() -> [Value; 6] {
    [
        json!({"jump_s": 3600}),
        json!({"jump_s": -86400, "clock": "both"}),
        json!({"jump_s": 5, "clock": "monotonic"}),
        json!({"rate": 1.5, "clock": "both"}),
        json!({"rate": 0.5}),
        json!({"jump_s": 10, "strobe_ms": 50}),
    ]
}

#[test]
fn every_shape_shows_and_heals_to_the_same_bytes() {
    if !possible() {
        return;
    }
    let s = busy();
    std::thread::sleep(Duration::from_millis(100));
    let p = s.proc(N);
    let env = TestEnv::of([p.clone()]);
    let pids = p.pids().unwrap();
    let before: Vec<Image> = pids.iter().map(|pid| Image::of(*pid).unwrap()).collect();
    block_on(async {
        for params in every_shape() {
            let host = (bend::wall_now(), std::time::Instant::now());
            let mut done = install(&env, &p, params.clone()).await;
            assert_eq!(
                done.receipt.status,
                Status::Installed,
                "{params} {:?}",
                done.receipt
            );
            let again = install(&env, &p, params.clone()).await;
            assert_eq!(again.receipt.status, Status::Indeterminate, "bent already");
            let neighbour = Started::shell("sleep 600");
            std::thread::sleep(Duration::from_millis(30));
            true_before(neighbour.pid()).unwrap();
            let passed = bend::wall_now() - host.0 - host.1.elapsed().as_nanos() as i64;
            assert!(passed.abs() < 50_000_000, "the host keeps its time");
            let healed = done.handle.as_mut().unwrap().heal(&env).await;
            assert_eq!(healed.status, Status::Healed, "{params} {healed:?}");
            for (pid, was) in pids.iter().zip(&before) {
                assert_eq!(Image::of(*pid).unwrap(), *was, "{params}");
            }
        }
    });
    assert_eq!(p.pids().unwrap(), pids, "nobody crashed");
}

#[test]
fn a_patch_that_does_nothing_is_not_called_installed() {
    if !possible() {
        return;
    }
    let s = Started::shell("sleep 600");
    let p = s.proc(N);
    let env = TestEnv::of([p.clone()]);
    let was = Image::of(s.pid()).unwrap();
    for params in every_shape() {
        let asked: Clock = serde_json::from_value(params.clone()).unwrap();
        let done = block_on(bend(
            &env,
            std::slice::from_ref(&p),
            asked.bends(),
            |pid, _| patch::install(pid, &Bends::default()),
        ));
        assert_eq!(
            done.receipt.status,
            Status::Indeterminate,
            "{params} {:?}",
            done.receipt
        );
        drop(done);
        true_before(s.pid()).unwrap();
        assert_eq!(Image::of(s.pid()).unwrap(), was, "{params}");
    }
}

/// A shell that has children of its own: not one that is about to execute something.
fn is_shell(pid: &i32) -> bool {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    children.is_ok_and(|c| !c.trim().is_empty())
}

#[test]
fn forks_inherit_and_are_healed_and_drop_heals() {
    if !possible() {
        return;
    }
    // The subshell is forked without an exec, after the bend: it keeps the bent vDSO.
    let s = Started::shell("sleep 1; (while :; do sleep 0.05; done) & wait");
    std::thread::sleep(Duration::from_millis(50));
    let p = s.proc(N);
    let env = TestEnv::of([p.clone()]);
    block_on(async {
        let done = install(&env, &p, json!({"jump_s": 3600})).await;
        assert_eq!(done.receipt.status, Status::Installed, "{:?}", done.receipt);
        let deadline = Instant::now() + Duration::from_secs(60);
        let bent = |pid: &i32| {
            let off = readback::clocks(*pid).map_or(0, |(wall, _)| wall - bend::wall_now());
            (off - 3_600_000_000_000).abs() < 10_000_000_000
        };
        let child = loop {
            let others = p.pids().unwrap().into_iter().filter(|pid| *pid != p.root);
            // `sleep` is forked and executes anew; the subshell stays what it was forked as.
            if let Some(child) = others.filter(is_shell).find(bent) {
                break child;
            }
            assert!(Instant::now() < deadline, "no fork has inherited the bend");
            std::thread::sleep(Duration::from_millis(20));
        };
        drop(done);
        true_before(child).unwrap();
        true_before(p.root).unwrap();
    });
}

#[test]
fn killed_while_bent_heals_and_a_stopped_process_is_refused() {
    if !possible() {
        return;
    }
    let s = Started::shell("sleep 600");
    let p = s.proc(N);
    let env = TestEnv::of([p.clone()]);
    block_on(async {
        let mut done = install(&env, &p, json!({"jump_s": 3600})).await;
        assert_eq!(done.receipt.status, Status::Installed);
        drop(s);
        let healed = done.handle.as_mut().unwrap().heal(&env).await;
        assert_eq!(healed.status, Status::Healed, "{healed:?}");

        let s = Started::shell("sleep 600");
        let p = s.proc(N);
        let pid = nix::unistd::Pid::from_raw(p.root);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let fault: Clock = serde_json::from_value(json!({"jump_s": 1})).unwrap();
        let o = order("clock", "node:0", json!({}));
        assert!(fault.available(&env, &o, std::slice::from_ref(&p)).is_err());
    });
}

#[test]
fn what_is_refused() {
    for bad in [
        json!({}),
        json!({"rate": 1.0}),
        json!({"rate": -1.0}),
        json!({"strobe_ms": 100}),
        json!({"jump_s": 1e12}),
        json!({"jump_s": 1, "strobe_ms": 0.1}),
    ] {
        let fault: Clock = serde_json::from_value(bad.clone()).unwrap();
        assert!(fault.check().is_err(), "{bad}");
    }
    assert!(serde_json::from_value::<Clock>(json!({"jump": 1})).is_err());
}

pub(super) fn have(program: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !found {
        eprintln!("skipped: no {program} here");
    }
    found
}
