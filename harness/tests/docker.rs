#![allow(clippy::unwrap_used)]
//! Runs on Docker. Skipped unless FENCEPOST_E2E=docker, and then they must run.

mod common;

use common::*;

fn as_expected(line: &str) {
    if !docker_wanted() {
        return println!("skipped: set FENCEPOST_E2E=docker to run it");
    }
    let dir = tempfile::tempdir().unwrap();
    let out = fencepost(dir.path(), &format!("run {line} --on docker --out run"));
    assert_eq!(code(&out), 0, "{line}: {}", told(&out));
    nothing_left(&dir.path().join("run"));
}

#[test]
fn the_kleppmann_pause_on_a_real_redis() {
    as_expected("kleppmann-pause --system redis --seed 1");
}

#[test]
fn the_fenced_variant_on_a_real_redis() {
    as_expected("kleppmann-pause-fenced --system redis --seed 1");
}

#[test]
fn a_healthy_redis() {
    as_expected("healthy --system redis --seed 1");
}

#[test]
fn the_fenced_variant_on_a_real_zookeeper() {
    as_expected("kleppmann-pause-fenced --system zookeeper --seed 1");
}

#[test]
fn etcd_gives_no_lock_twice_when_its_leader_is_killed() {
    as_expected("leader-kill --seed 1");
}

#[test]
fn a_postgres_lock_ends_with_its_connection() {
    as_expected("postgres-connection-lost --seed 1");
}

#[test]
fn redlock_breaks_when_a_clock_jumps() {
    as_expected("redlock-clock-jump --seed 1");
}

#[test]
fn fifty_waiters_are_woken_one_by_one() {
    as_expected("fifo-waiters --system zookeeper --seed 1");
}
