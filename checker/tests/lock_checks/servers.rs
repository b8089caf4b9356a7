//! Servers that end: by themselves, by a fault, or as a fault may end them.

use fencepost_checker::verdict::Verdict;

use crate::script::{Script, with};

const CHECK: &str = "servers-run-on";
const RUN: &str = r#"{"system":{"name":"test","lease":true},"lease":{"ttl_ms":1000},"nodes":3}"#;

trait Servers {
    fn ended(self, node: u32) -> Self;
    fn may_end(self, target: &str, status: &str) -> Self;
}

impl Servers for Script {
    fn ended(self, node: u32) -> Script {
        let v = format!(
            r#"{{"node":"node:{node}","name":"test-{node}","reason":"exit status: 101","log":["thread main panicked","it is broken"]}}"#
        );
        self.named(&format!("n{node}"), "exit", &v)
    }

    fn may_end(self, target: &str, status: &str) -> Script {
        let v = format!(
            r#"{{"id":"f1","fault":"disk","kind":"disk","action":"install","targets":["{target}"],"affects":["{target}"],"may_end":true,"status":"{status}","receipt":{{}}}}"#
        );
        self.named("nemesis", "fault", &v)
    }
}

#[test]
fn servers_that_run_to_the_end_hold_and_where_none_were_watched_nothing_is_said() {
    with(RUN).holds(CHECK);
    with(r#"{"nodes":0}"#).unknown(CHECK);
    with("{}").unknown(CHECK);
    // A worker's end is no server's.
    with(RUN)
        .named("w1", "exit", r#"{"reason":"","expected":true}"#)
        .holds(CHECK);
}

#[test]
fn one_that_ends_by_itself_is_named_with_when_how_and_its_last_words() {
    let s = with(RUN).t(4210).ended(1);
    assert_eq!(s.says(CHECK, Verdict::Violated), [0]);
    let reason = s.judge().remove(CHECK).unwrap().reason;
    assert_eq!(
        reason,
        "node:1 (test-1) ended by itself at 4.210 s, exit status: 101; its log ends: thread main panicked | it is broken"
    );
    // A fault that only stops or cuts it excuses nothing, on it or on all.
    with(RUN)
        .fault_on("pause", "node:1")
        .ended(1)
        .violates(CHECK);
}

#[test]
fn a_fault_that_may_end_its_target_excuses_that_one_from_then_on() {
    let excused = with(RUN).may_end("node:1", "started").ended(1);
    let reason = excused.judge().remove(CHECK).unwrap().reason;
    assert!(reason.contains("as fault disk may end it"), "{reason}");
    excused.holds(CHECK);
    with(RUN)
        .may_end("node:1", "started")
        .ended(2)
        .violates(CHECK);
    with(RUN)
        .may_end("node:1", "skipped")
        .ended(1)
        .violates(CHECK);
    with(RUN)
        .ended(1)
        .may_end("node:1", "started")
        .violates(CHECK);
}
