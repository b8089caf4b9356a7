//! fence-monotonic, stale-fence-accepted, lost-update, unheld-write, owner-only, coverage.

use fencepost_checker::verdict::Verdict;

use crate::script::{script, with};

#[test]
fn fences_rise_from_one_grant_to_the_next() {
    let s = |second: u64| {
        script()
            .grant(0, "a", 5)
            .rel(0, "a", 5)
            .held(0, true)
            .grant(1, "b", second)
    };
    s(6).holds("fence-monotonic");
    s(5).violates("fence-monotonic");
    s(4).violates("fence-monotonic");
    assert_eq!(
        s(4).says("fence-monotonic", Verdict::Violated),
        [0, 1, 4, 5]
    );
}

#[test]
fn a_late_ok_for_a_lower_fence_is_no_regression() {
    // Both were asked for before either was answered: answers come in either order.
    script()
        .acq(0)
        .acq(1)
        .t(10)
        .got(1, "b", 6)
        .rel(1, "b", 6)
        .held(1, true)
        .t(1100)
        .got(0, "a", 5)
        .clean();
}

#[test]
fn one_fence_for_two_owners_is_violated_even_when_they_overlap() {
    script()
        .acq(0)
        .acq(1)
        .t(1050)
        .got(0, "a", 5)
        .got(1, "b", 5)
        .violates("fence-monotonic");
}

#[test]
fn no_fences_no_answer() {
    with(r#"{"system":{"lease":true}}"#).unknown("fence-monotonic");
}

#[test]
fn stale_fences_are_judged_by_the_stores_own_order_only() {
    let base = || {
        script()
            .grant(0, "a", 1)
            .wr(0, "a", 1, "v1", "null")
            .ok(0)
            .rel(0, "a", 1)
            .held(0, true)
            .grant(1, "b", 2)
            .wr(1, "b", 2, "v2", "v1")
            .ok(1)
    };
    base().unknown("stale-fence-accepted");
    let one = || base().log("write", "a", 1, "v1", true);
    // In order: nothing superseded ever came.
    one()
        .log("write", "b", 2, "v2", true)
        .unknown("stale-fence-accepted");
    base()
        .log("write", "b", 2, "v2", true)
        .log("write", "a", 1, "v1", false)
        .holds("stale-fence-accepted");
    base()
        .log("read", "b", 2, "", true)
        .log("write", "a", 1, "v1", true)
        .violates("stale-fence-accepted");
    let mut faulted = base()
        .log("write", "b", 2, "v2", true)
        .log("write", "a", 1, "v1", true);
    faulted.facts.store.faulted = true;
    faulted.unknown("stale-fence-accepted");
}

#[test]
fn updates_chain_from_value_to_value() {
    let s = || script().grant(0, "a", 1).wr(0, "a", 1, "v1", "null").ok(0);
    s().unknown("lost-update");
    s().last(r#"{"value":"v1"}"#).holds("lost-update");
    s().last(r#"{"value":null}"#).violates("lost-update");
    s().wr(0, "a", 1, "v2", "null")
        .ok(0)
        .violates("lost-update");
    s().wr(0, "a", 1, "v2", "v1")
        .ok(0)
        .last(r#"{"value":"v2"}"#)
        .holds("lost-update");
    s().wr(0, "a", 1, "v2", "v1")
        .ok(0)
        .last(r#"{"value":"v1"}"#)
        .violates("lost-update");
}

#[test]
fn unknown_updates_may_or_may_not_be_in_the_chain() {
    let s = || script().grant(0, "a", 1).wr(0, "a", 1, "v1", "null").ok(0);
    let unknown = || s().wr(0, "a", 1, "v2", "v1").info(0);
    unknown().last(r#"{"value":"v1"}"#).holds("lost-update");
    unknown().last(r#"{"value":"v2"}"#).holds("lost-update");
    // It applied, as the next update shows.
    let next = || unknown().wr(1, "b", 2, "v3", "v2").ok(1);
    next().last(r#"{"value":"v3"}"#).holds("lost-update");
    // Its own late ok changes nothing.
    s().wr(0, "a", 1, "v2", "v1")
        .wr(1, "b", 2, "v3", "v2")
        .ok(1)
        .ok(0)
        .last(r#"{"value":"v3"}"#)
        .holds("lost-update");
    // A refused one shares a prev with nobody.
    s().wr(0, "a", 1, "v2", "v1")
        .fail(0, "stale-fence")
        .wr(1, "b", 2, "v3", "v1")
        .ok(1)
        .last(r#"{"value":"v3"}"#)
        .holds("lost-update");
}

#[test]
fn acknowledged_elements_are_in_the_final_set() {
    let s = || {
        script()
            .grant(0, "a", 1)
            .add(0, "a", 1, 7)
            .ok(0)
            .add(1, "b", 2, 8)
            .info(1)
    };
    s().last(r#"{"value":null,"set":[7]}"#).holds("lost-update");
    s().last(r#"{"value":null,"set":[7,8]}"#)
        .holds("lost-update");
    s().last(r#"{"value":null,"set":[8]}"#)
        .violates("lost-update");
    s().unknown("lost-update");
}

#[test]
fn a_write_needs_a_grant_that_was_or_could_have_been_made() {
    let s = || script().grant(0, "a", 1);
    s().wr(0, "a", 1, "v", "null").ok(0).holds("unheld-write");
    s().wr(0, "x", 1, "v", "null")
        .ok(0)
        .violates("unheld-write");
    s().wr(0, "a", 2, "v", "null")
        .fail(0, "stale-fence")
        .violates("unheld-write");
    s().wr(0, "x", 9, "v", "null")
        .fail(0, "deadline")
        .unknown("unheld-write");
    // An acquire of unknown outcome could have returned it.
    s().acq(1)
        .info(1)
        .wr(0, "x", 9, "v", "null")
        .ok(0)
        .holds("unheld-write");
    // One that is open could too, until it answers otherwise.
    let open = || s().acq(1).wr(0, "x", 9, "v", "null").ok(0);
    open().holds("unheld-write");
    open().got(1, "x", 9).holds("unheld-write");
    open().fail(1, "busy").violates("unheld-write");
}

#[test]
fn a_write_in_the_stores_log_under_no_grant_is_unheld() {
    script()
        .grant(0, "a", 1)
        .log("write", "ghost", 7, "v", true)
        .judge()
        .get("unheld-write")
        .map(|r| assert_eq!(r.verdict, Verdict::Violated))
        .unwrap();
}

#[test]
fn an_old_owners_refused_release_is_right_and_an_accepted_one_is_not() {
    let s = || {
        script()
            .grant(0, "a", 1)
            .t(1100)
            .grant(1, "b", 2)
            .t(1200)
            .rel(0, "a", 1)
    };
    s().held(0, false).clean().holds("owner-only");
    s().fail(0, "not-held").clean().holds("owner-only");
    s().info(0).clean();
    s().held(0, true).violates("owner-only");
}

#[test]
fn a_release_in_a_race_with_the_next_grant_proves_nothing() {
    script()
        .grant(0, "a", 1)
        .acq(1)
        .t(1100)
        .rel(0, "a", 1)
        .got(1, "b", 2)
        .held(0, true)
        .clean();
}

#[test]
fn a_second_release_that_succeeds_is_violated() {
    let s = || {
        script()
            .grant(0, "a", 1)
            .rel(0, "a", 1)
            .held(0, true)
            .rel(0, "a", 1)
    };
    s().held(0, true).violates("owner-only");
    s().held(0, false).holds("owner-only");
    // The first one's outcome is unknown: the second may be the one.
    script()
        .grant(0, "a", 1)
        .rel(0, "a", 1)
        .info(0)
        .rel(2, "a", 1)
        .held(2, true)
        .clean();
}

#[test]
fn a_release_of_a_grant_never_made_is_violated() {
    script()
        .grant(0, "a", 1)
        .rel(1, "x", 1)
        .held(1, true)
        .violates("owner-only");
    script()
        .grant(0, "a", 1)
        .acq(2)
        .info(2)
        .rel(1, "x", 9)
        .held(1, true)
        .unknown("owner-only");
}

#[test]
fn coverage_says_which_fault_did_not_take_hold() {
    let mut s = script()
        .fault_on("pause", "worker:0")
        .fault_off("pause", "worker:0")
        .grant(0, "a", 1);
    s.facts.faults_planned = 1;
    let mut s = s.holds("coverage");
    s.facts.faults_planned = 2;
    let s = s
        .fault_event("f9", "cut", "install", "started", "worker:1")
        .fault_event("f9", "cut", "install", "skipped", "worker:1");
    let r = s.judge().remove("coverage").unwrap();
    assert_eq!(r.verdict, Verdict::Unknown);
    assert!(r.reason.contains("f9"), "{}", r.reason);
    let mut few = script().grant(0, "a", 1);
    few.facts.allow.min_grants = 5;
    few.unknown("coverage");
}
