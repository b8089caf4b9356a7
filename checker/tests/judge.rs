//! A run folder and its verdict.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use fencepost_checker::judge::judge;
use fencepost_checker::verdict::{Outcome, Verdict, VerdictFile};

const RUN: &str = r#"{"format":1,"run_id":"r","name":"t","seed":7,"host":"local",
 "system":{"name":"noop","lease":true,"fence":true,"granularity_ms":1},
 "store":{"kind":"witness","fenced":false},"lease":{"ttl_ms":1000},"mode":"exclusive","permits":null,
 "expect":{EXPECT},"faults_planned":0,"status":"STATUS","failure":null}"#;

/// A holds, B is granted past A's lease, B writes, then A.
const HISTORY: &[&str] = &[
    r#""time":0,"process":0,"type":"invoke","f":"acquire","key":"L0","value":{"worker":0,"ttl_ms":1000}"#,
    r#""time":1000000,"process":0,"type":"ok","f":"acquire","key":"L0","value":{"owner":"a","fence":1,"ttl_ms":1000}"#,
    r#""time":1100000000,"process":1,"type":"invoke","f":"acquire","key":"L0","value":{"worker":1,"ttl_ms":1000}"#,
    r#""time":1101000000,"process":1,"type":"ok","f":"acquire","key":"L0","value":{"owner":"b","fence":2,"ttl_ms":1000}"#,
    r#""time":1102000000,"process":1,"type":"invoke","f":"write","key":"L0","value":{"worker":1,"owner":"b","fence":2,"value":"v2","prev":null}"#,
    r#""time":1103000000,"process":1,"type":"ok","f":"write","key":"L0","value":null"#,
    r#""time":1104000000,"process":0,"type":"invoke","f":"write","key":"L0","value":{"worker":0,"owner":"a","fence":1,"value":"v1","prev":"v2"}"#,
    r#""time":1105000000,"process":0,"type":"ok","f":"write","key":"L0","value":null"#,
];

const STORE: &str = concat!(
    r#"{"seq":1,"time":1,"op":"write","key":"L0","fence":2,"owner":"b","value":"v2","prev":null,"accepted":true,"highest":2}"#,
    "\n",
    r#"{"seq":2,"time":2,"op":"write","key":"L0","fence":1,"owner":"a","value":"v1","prev":"v2","accepted":true,"highest":2}"#,
    "\n"
);

fn history() -> String {
    let line = |(i, l): (usize, &&str)| format!("{{\"index\":{i},{l}}}\n");
    HISTORY.iter().enumerate().map(line).collect()
}

fn folder(expect: &str, status: &str, history: &str, store: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let run = RUN.replace("EXPECT", expect).replace("STATUS", status);
    fs::write(dir.path().join("run.json"), run).unwrap();
    fs::write(dir.path().join("history.jsonl"), history).unwrap();
    fs::write(dir.path().join("store.jsonl"), store).unwrap();
    dir
}

fn verdict(dir: &Path) -> VerdictFile {
    judge(dir).unwrap()
}

const SEEN: &str = r#""stale-fence-accepted":"violated","lease-overrun":"violated","double-holder.client":"violated","double-holder.service":"holds""#;

#[test]
fn a_violation_that_is_expected_is_as_expected() {
    let dir = folder(SEEN, "complete", &history(), STORE);
    let v = verdict(dir.path());
    assert_eq!(v.outcome, Outcome::AsExpected, "{}", v.to_json());
    assert_eq!(v.exit_code, 0);
    let stale = &v.checks["stale-fence-accepted"];
    assert_eq!(stale.verdict, Verdict::Violated);
    assert_eq!(stale.evidence, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn the_verdict_is_the_same_byte_for_byte_and_anywhere() {
    let a = folder(SEEN, "complete", &history(), STORE);
    let b = folder(SEEN, "complete", &history(), STORE);
    let first = verdict(a.path()).to_json();
    assert_eq!(first, verdict(a.path()).to_json());
    assert_eq!(first, verdict(b.path()).to_json());
    let back: VerdictFile = serde_json::from_str(&first).unwrap();
    assert_eq!(back.to_json(), first);
}

#[test]
fn precedence() {
    let outcome = |expect: &str, status: &str, history: &str, store: &str| {
        let v = verdict(folder(expect, status, history, store).path());
        (v.outcome, v.exit_code)
    };
    let h = history();
    // An unexpected violation comes before everything.
    assert_eq!(outcome("", "failed", &h, STORE), (Outcome::Violated, 1));
    assert_eq!(outcome("", "running", &h, STORE), (Outcome::Violated, 1));
    let broken = format!("{h}rubbish\n{h}");
    assert_eq!(
        outcome("", "complete", &broken, STORE),
        (Outcome::Violated, 1)
    );
    // Then malformed input, then the harness.
    assert_eq!(
        outcome(SEEN, "failed", &broken, STORE),
        (Outcome::Malformed, 6)
    );
    assert_eq!(
        outcome(SEEN, "failed", &h, STORE),
        (Outcome::HarnessFailure, 3)
    );
    assert_eq!(
        outcome(SEEN, "running", &h, STORE),
        (Outcome::HarnessFailure, 3)
    );
    assert_eq!(
        outcome(SEEN, "interrupted", &h, STORE),
        (Outcome::Interrupted, 130)
    );
    // A fault that did not take hold.
    let skipped = format!(
        "{h}{}\n",
        r#"{"index":8,"time":1200000000,"process":"nemesis","type":"info","f":"fault","value":{"id":"f1","fault":"cut","kind":"cut","action":"install","affects":[],"status":"skipped","reason":"no nft"}}"#
    );
    assert_eq!(
        outcome(SEEN, "complete", &skipped, STORE),
        (Outcome::FaultNotApplied, 4)
    );
    // Expected, not seen; and what cannot be said.
    let calm: String = h.lines().take(6).map(|l| format!("{l}\n")).collect();
    let log = STORE.lines().next().unwrap();
    let client = r#""double-holder.client":"violated""#;
    assert_eq!(
        outcome(client, "complete", &calm, log),
        (Outcome::NotSeen, 7)
    );
    let stale = r#""stale-fence-accepted":"violated""#;
    assert_eq!(
        outcome(stale, "complete", &calm, log),
        (Outcome::Unknown, 5)
    );
    let holds = r#""stale-fence-accepted":"holds""#;
    assert_eq!(
        outcome(holds, "complete", &calm, log),
        (Outcome::Unknown, 5)
    );
    let any = r#""stale-fence-accepted":"any""#;
    assert_eq!(
        outcome(any, "complete", &calm, log),
        (Outcome::AsExpected, 0)
    );
}

#[test]
fn the_overall_double_holder_is_compared_only_when_no_class_is_named() {
    let named = r#""double-holder":"violated","stale-fence-accepted":"any","lease-overrun":"any""#;
    let v = verdict(folder(named, "complete", &history(), STORE).path());
    assert_eq!(v.outcome, Outcome::AsExpected, "{}", v.reason);
}

#[test]
fn malformed_input_is_named_by_its_line_and_what_came_before_is_judged() {
    let lone = format!(
        "{}{}\n",
        history(),
        r#"{"index":8,"time":2000000000,"process":7,"type":"ok","f":"read"}"#
    );
    let v = verdict(folder(SEEN, "complete", &lone, STORE).path());
    assert_eq!(v.outcome, Outcome::Malformed);
    assert!(v.reason.contains("line 9"), "{}", v.reason);
    assert_eq!(v.checks["lease-overrun"].verdict, Verdict::Violated);
    let store = format!("{STORE}{{\"seq\":2}}\n");
    let v = verdict(folder(SEEN, "complete", &history(), &store).path());
    assert!(v.reason.contains("store.jsonl, line 3"), "{}", v.reason);
}

#[test]
fn torn_last_lines_are_tolerated_and_said() {
    let h = history() + r#"{"index":8,"ti"#;
    let s = STORE.to_owned() + r#"{"seq":3,"#;
    let v = verdict(folder(SEEN, "complete", &h, &s).path());
    assert_eq!(v.outcome, Outcome::AsExpected, "{}", v.reason);
    assert_eq!(v.warnings.len(), 2, "{:?}", v.warnings);
}

#[test]
fn shuffled_lines_are_sorted_by_index() {
    let h = history();
    let lines: Vec<&str> = h.lines().rev().collect();
    let shuffled = lines.join("\n") + "\n";
    let mut v = verdict(folder(SEEN, "complete", &shuffled, STORE).path());
    assert_eq!(v.warnings.len(), 1);
    v.warnings.clear();
    let straight = verdict(folder(SEEN, "complete", &h, STORE).path());
    assert_eq!(v, straight);
}

#[test]
fn missing_files() {
    let dir = folder("", "complete", "", "");
    fs::remove_file(dir.path().join("store.jsonl")).unwrap();
    fs::remove_file(dir.path().join("history.jsonl")).unwrap();
    let v = verdict(dir.path());
    assert_eq!(v.outcome, Outcome::Unknown, "{}", v.reason);
    fs::remove_file(dir.path().join("run.json")).unwrap();
    assert!(
        judge(dir.path())
            .unwrap_err()
            .to_string()
            .contains("run.json")
    );
}
