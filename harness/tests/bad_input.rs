#![allow(clippy::unwrap_used)]
//! What goes wrong is said in one line, with the right exit code, and leaves nothing behind.

mod common;

use std::fs;

use common::*;

fn refused(line: &str, wanted_code: i32, wanted: &str) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("typo.toml"),
        "about = \"x\"\n[load]\nrat = 5.0\n",
    )
    .unwrap();
    fs::create_dir(dir.path().join("taken")).unwrap();
    fs::write(dir.path().join("taken/history.jsonl"), "").unwrap();
    fs::write(
        dir.path().join("torn.jsonl"),
        "{\"index\":0,\"time\":1,\"process\":0,\"type\":\"invo",
    )
    .unwrap();
    fs::write(
        dir.path().join("bad.jsonl"),
        "{\"index\":0,\"time\":1,\"process\":0,\"type\":\"invoke\",\"f\":\"acquire\"}\nwhat\n{}\n",
    )
    .unwrap();
    fs::write(
        dir.path().join("lone.jsonl"),
        include_str!("../../checker/corpus/b09-lone-ok.jsonl"),
    )
    .unwrap();
    let out = fencepost(dir.path(), line);
    let text = stderr(&out);
    assert_eq!(code(&out), wanted_code, "{line}: {}", told(&out));
    assert!(text.contains(wanted), "{line}: {text}");
    assert_eq!(
        text.lines().filter(|l| l.starts_with("error:")).count(),
        1,
        "{line}: {text}"
    );
    assert!(!dir.path().join("runs").exists(), "{line} left a folder");
}

#[test]
fn scenarios() {
    refused(
        "run typo.toml",
        2,
        "typo.toml:3:1: unknown key `rat`; did you mean `rate`?",
    );
    refused("run kleppman-pause", 2, "did you mean `kleppmann-pause`?");
    refused("run no/such.toml", 2, "cannot read scenario no/such.toml");
    refused("run healthy --rate -3", 2, "rate");
    refused("run healthy --system redsi", 2, "no system");
    refused("run healthy --out taken", 2, "already holds a run");
    refused(
        "run healthy --param x=1 --system redis",
        2,
        "unknown field `x`",
    );
}

#[test]
fn histories() {
    refused("check nowhere", 2, "nowhere");
    refused("check torn.jsonl", 2, "--model");
    refused(
        "check bad.jsonl --model owner-mutex",
        6,
        "bad.jsonl: line 2",
    );
    refused(
        "check lone.jsonl --model fenced-mutex",
        6,
        "lone.jsonl: line 5",
    );
    refused(
        "check bad.jsonl --model osmium",
        2,
        "no model named `osmium`",
    );
}

/// Every try failed: nothing is known of the lock, however the history is given.
#[test]
fn nothing_to_say_is_unknown_as_a_file_and_as_a_folder() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("history.jsonl"),
        include_str!("../../checker/corpus/b13-all-fail.jsonl"),
    )
    .unwrap();
    fs::write(
        dir.path().join("run.json"),
        r#"{"format":1,"system":{"fence":true},"status":"complete"}"#,
    )
    .unwrap();
    for line in [
        "check .",
        "check history.jsonl --model fenced-mutex",
        "check history.jsonl --model owner-mutex",
    ] {
        let out = fencepost(dir.path(), line);
        assert_eq!(code(&out), 5, "{line}: {}", told(&out));
    }
}

#[test]
fn a_program_that_is_not_there_is_named_with_the_way_to_get_it() {
    if on_path("redis-server") {
        return println!("skipped: redis-server is on PATH");
    }
    let dir = tempfile::tempdir().unwrap();
    let out = fencepost(dir.path(), "run healthy --system redis --out run");
    assert_eq!(code(&out), 3, "{}", told(&out));
    assert!(stderr(&out).contains("redis-server"), "{}", stderr(&out));
    assert_eq!(json(&dir.path().join("run/run.json"))["status"], "failed");
}
