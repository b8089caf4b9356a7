//! The checks during a run: sure of what they say, silent about what may be explained yet.

use fencepost_checker::judge::{Certain, Live};
use fencepost_checker::verdict::Verdict;

use crate::script::{Script, script, with};
use crate::simulation::{Bug, facts, history, verdicts};

/// Everything that is told, with the number of events pushed by then. The log's lines come last.
fn told(s: &Script) -> Vec<(usize, Certain)> {
    let mut live = Live::new(&s.facts);
    let mut told = Vec::new();
    for (n, event) in s.events.iter().enumerate() {
        told.extend(live.push(event).map(|c| (n + 1, c)));
    }
    for op in &s.store {
        told.extend(live.push_store(op).map(|c| (s.events.len(), c)));
    }
    told
}

fn names(told: &[(usize, Certain)]) -> Vec<&'static str> {
    told.iter().map(|(_, c)| c.check).collect()
}

/// Two clients are granted the lock within one lease.
fn twice() -> Script {
    script().grant(0, "a", 1).t(500).grant(1, "b", 2).t(700)
}

#[test]
fn a_double_grant_is_told_once_both_showed_that_they_noticed_no_loss() {
    assert!(told(&twice()).is_empty());
    assert!(told(&twice().claims(0, "a", 1, 600)).is_empty());
    let both = twice().claims(0, "a", 1, 600).claims(1, "b", 2, 600);
    let told = told(&both.claims(0, "a", 1, 650).claims(1, "b", 2, 650));
    let [(at, certain)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((*at, certain.check), (6, "double-holder.service"));
    assert!(certain.is_unexpected());
    assert_eq!(certain.finding.evidence, [0, 1, 2, 3]);
    assert_eq!(certain.finding.story.len(), 3, "{:?}", certain.finding);
}

#[test]
fn a_loss_noticed_before_takes_a_double_grant_back() {
    let s = twice().lost(0, "a", 1, 400).claims(1, "b", 2, 600);
    assert!(told(&s).is_empty());
    s.clean();
}

#[test]
fn the_stores_log_may_come_after_the_events() {
    let s = script()
        .grant(0, "a", 33)
        .t(1100)
        .grant(1, "b", 34)
        .log("write", "b", 34, "v2", true)
        .log("write", "a", 33, "v1", true);
    let told = told(&s);
    assert_eq!(names(&told), ["stale-fence-accepted"]);
    assert_eq!(told[0].1.finding.evidence, [0, 1, 2, 3]);
}

#[test]
fn what_the_facts_silence_is_not_told() {
    let store = r#"{"system":{"fence":true},"store":{"faulted":true}}"#;
    let log = |s: Script| {
        s.log("write", "b", 34, "v2", true)
            .log("write", "a", 33, "v1", true)
    };
    assert!(told(&log(with(store))).is_empty());
    assert!(told(&log(with(r#"{"mode":"shared"}"#))).is_empty());
    assert_eq!(names(&told(&log(with("{}")))), ["stale-fence-accepted"]);
}

#[test]
fn what_is_expected_is_told_and_does_not_end_the_run() {
    let run = r#"{"system":{"lease":true,"fence":true},"lease":{"ttl_ms":1000},
        "expect":{"fence-monotonic":"violated","owner-only":"any"}}"#;
    let s = with(run).grant(0, "a", 2).rel(0, "a", 2).held(0, true);
    let s = s.grant(1, "b", 1).rel(0, "a", 2).held(0, true);
    let told = told(&s);
    assert_eq!(names(&told), ["fence-monotonic", "owner-only"]);
    assert!(told.iter().all(|(_, c)| !c.is_unexpected()));
}

#[test]
fn the_whole_stands_for_its_classes_where_no_class_is_named() {
    let service = |expect: &str| {
        let mut s = twice().claims(0, "a", 1, 600).claims(1, "b", 2, 600);
        s.facts.expect = serde_json::from_str(expect).unwrap();
        told(&s)[0].1.is_unexpected()
    };
    assert!(service("{}"));
    assert!(service(r#"{"double-holder":"holds"}"#));
    assert!(!service(r#"{"double-holder":"violated"}"#));
    assert!(service(
        r#"{"double-holder":"violated","double-holder.client":"violated"}"#
    ));
    assert!(!service(r#"{"double-holder.service":"any"}"#));
}

/// Whatever is told during a run is in its verdict: over random runs of a good service and of broken ones.
#[test]
fn nothing_is_told_that_the_verdict_does_not_say() {
    let mut sure = 0;
    let bugs = [
        Bug::None,
        Bug::Grants,
        Bug::Short,
        Bug::Fence,
        Bug::Release,
        Bug::Revive,
    ];
    for bug in bugs {
        for seed in 1..=40u64 {
            let events = history(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), bug, 60);
            let mut live = Live::new(&facts());
            let told: Vec<Certain> = events.iter().filter_map(|e| live.push(e)).collect();
            let verdict = verdicts(&events);
            for c in told {
                let r = &verdict[c.check];
                assert_eq!(r.verdict, Verdict::Violated, "{bug:?} {seed} {c:?}");
                sure += usize::from(bug != Bug::None);
            }
        }
    }
    assert!(sure > 50, "{sure}");
}
