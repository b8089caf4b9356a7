//! double-holder, its classes, and what certain holds rest on.

use crate::script::{Script, script, with};

const SERVICE: &str = "double-holder.service";
const CLIENT: &str = "double-holder.client";
const LIMIT: &str = "double-holder.limit";

/// A is granted at 2 ms, B at `b` ms.
fn two(b: i64) -> Script {
    script().grant(0, "a", 1).t(b - 2).grant(1, "b", 2)
}

#[test]
fn a_second_grant_within_the_promised_end_is_the_services() {
    let s = two(500)
        .violates(SERVICE)
        .violates("double-holder")
        .unknown(CLIENT)
        .unknown(LIMIT);
    assert_eq!(
        s.says(SERVICE, fencepost_checker::verdict::Verdict::Violated),
        [0, 1, 2, 3]
    );
}

#[test]
fn the_promised_end_leaves_a_margin() {
    // 1000 ms − 1 % − 5 ms − 1 ms granularity = 984 ms after the invoke at 0.
    two(983).violates(SERVICE);
    two(984).clean();
}

#[test]
fn hand_over_by_release_holds() {
    script()
        .grant(0, "a", 1)
        .t(50)
        .rel(0, "a", 1)
        .t(52)
        .grant(1, "b", 2)
        .clean()
        .holds(SERVICE);
}

#[test]
fn a_release_ends_the_hold_when_it_is_invoked_whatever_its_outcome() {
    let s = || {
        script()
            .grant(0, "a", 1)
            .acq(1)
            .t(50)
            .rel(0, "a", 1)
            .t(52)
            .got(1, "b", 2)
    };
    s().t(60).held(0, true).clean();
    s().t(60).info(0).clean();
    s().clean();
}

#[test]
fn a_renewal_answered_ok_extends_the_promised_end_from_its_stamp() {
    let s = || {
        script()
            .grant(0, "a", 1)
            .t(300)
            .renewed(0, "a", 1, "true", 300)
    };
    s().t(1200).grant(1, "b", 2).violates(SERVICE);
    s().t(1290).grant(1, "b", 2).clean();
}

#[test]
fn a_renewal_whose_reply_was_lost_extends_nothing() {
    let s = || script().grant(0, "a", 1).t(300);
    s().renewed(0, "a", 1, "null", 300)
        .t(1200)
        .grant(1, "b", 2)
        .clean();
    s().renewed(0, "a", 1, "false", 300)
        .t(1200)
        .grant(1, "b", 2)
        .clean();
    let v = r#"{"worker":0,"owner":"a","fence":1,"ttl_ms":1000}"#;
    let asked = || s().invoke(0, "renew", v).t(400);
    asked().info(0).t(1200).grant(1, "b", 2).clean();
    asked().ok(0).t(1200).grant(1, "b", 2).violates(SERVICE);
}

#[test]
fn the_time_waited_counts_against_the_promised_end() {
    // B may have been granted, and its lease run out, at any time since it asked.
    let s = || {
        script()
            .grant(0, "a", 1)
            .acq(1)
            .t(300)
            .renewed(0, "a", 1, "true", 300)
            .t(1100)
    };
    s().got(1, "b", 2).clean();
    s().got(1, "b", 2)
        .renewed(1, "b", 2, "true", 1101)
        .violates(SERVICE);
}

#[test]
fn an_ok_delayed_by_a_pause_certifies_nothing() {
    // A's acquire took effect early; its ok is read after the lease ran out and B was granted.
    script()
        .acq(0)
        .fault_on("pause", "worker:0")
        .acq(1)
        .t(1100)
        .got(1, "b", 2)
        .t(1200)
        .fault_off("pause", "worker:0")
        .got(0, "a", 1)
        .clean();
}

#[test]
fn a_loss_counts_from_when_it_may_have_been_noticed() {
    // Noticed no earlier than 100 ms, told at 400 ms; B was granted in between.
    two(200).t(400).lost(0, "a", 1, 100).clean();
    // Noticed no earlier than 300 ms: A held for sure when B was granted.
    two(200).t(400).lost(0, "a", 1, 300).violates(SERVICE);
}

#[test]
fn a_close_ends_the_hold() {
    script()
        .grant(0, "a", 1)
        .t(10)
        .named("w0", "close", "{}")
        .grant(1, "b", 2)
        .clean();
    script()
        .grant(0, "a", 1)
        .t(10)
        .named("w3", "close", "{}")
        .grant(1, "b", 2)
        .violates(SERVICE);
}

#[test]
fn a_killed_workers_lease_lives_on_but_not_where_locks_end_with_the_connection() {
    let run = |ends: bool| {
        let lease = !ends;
        let s = with(&format!(
            r#"{{"system":{{"lease":{lease},"ends_with_connection":{ends}}}}}"#
        ));
        s.grant(0, "a", 1)
            .fault_on("kill", "worker:0")
            .t(50)
            .grant(1, "b", 2)
            .named("w0", "exit", r#"{"reason":"killed","expected":true}"#)
    };
    run(true).clean();
    run(false).violates(SERVICE);
    // A worker that died by itself: its exit is read after the next grant.
    with(r#"{"system":{"ends_with_connection":true}}"#)
        .invoke(0, "acquire", r#"{"worker":0,"ttl_ms":null}"#)
        .done(
            0,
            fencepost_history::EventType::Ok,
            r#"{"owner":"a","fence":1}"#,
            None,
        )
        .t(50)
        .invoke(1, "acquire", r#"{"worker":1,"ttl_ms":null}"#)
        .done(
            1,
            fencepost_history::EventType::Ok,
            r#"{"owner":"b","fence":2}"#,
            None,
        )
        .t(60)
        .named("w0", "exit", r#"{"reason":"crashed","expected":false}"#)
        .clean();
}

#[test]
fn a_claim_past_the_promised_end_is_the_clients_unless_a_fault_held_it() {
    two(1100)
        .t(1300)
        .claims(0, "a", 1, 1200)
        .violates(CLIENT)
        .holds(SERVICE);
    // The claim may have been made before B was granted.
    two(1100).t(1300).claims(0, "a", 1, 1050).clean();
    for (kind, class) in [
        ("pause", LIMIT),
        ("cut", LIMIT),
        ("clock", LIMIT),
        ("disk", CLIENT),
    ] {
        script()
            .grant(0, "a", 1)
            .acq(1)
            .t(500)
            .fault_on(kind, "worker:0")
            .t(1100)
            .got(1, "b", 2)
            .t(1150)
            .fault_off(kind, "worker:0")
            .t(1300)
            .claims(0, "a", 1, 1200)
            .violates(class)
            .violates("double-holder")
            .holds(SERVICE);
    }
    // A fault that was over before the promised end excuses nothing; nor does another's.
    script()
        .grant(0, "a", 1)
        .acq(1)
        .t(100)
        .fault_on("pause", "worker:0")
        .t(300)
        .fault_off("pause", "worker:0")
        .t(500)
        .fault_on("pause", "worker:1")
        .t(1100)
        .got(1, "b", 2)
        .t(1300)
        .claims(0, "a", 1, 1200)
        .violates(CLIENT);
}

#[test]
fn to_notice_a_loss_late_is_no_claim() {
    two(1100).t(1300).lost(0, "a", 1, 1200).clean();
}

#[test]
fn a_claim_while_a_release_is_under_way_is_none() {
    two(1100)
        .t(1110)
        .rel(0, "a", 1)
        .t(1300)
        .claims(0, "a", 1, 1200)
        .clean();
}

#[test]
fn giving_up_early_and_expiry_are_fine() {
    script()
        .grant(0, "a", 1)
        .t(100)
        .lost(0, "a", 1, 50)
        .t(110)
        .grant(1, "b", 2)
        .t(200)
        .rel(0, "a", 1)
        .held(0, false)
        .clean();
}

#[test]
fn shared_holders_share_and_exclude_a_writer() {
    let s = || {
        script()
            .acq_mode(0, "shared")
            .got(0, "a", 1)
            .acq_mode(1, "shared")
            .got(1, "b", 2)
    };
    s().clean();
    s().grant(2, "c", 3).violates(SERVICE);
    script()
        .grant(0, "a", 1)
        .acq_mode(1, "shared")
        .got(1, "b", 2)
        .violates(SERVICE);
}

#[test]
fn a_semaphore_counts() {
    let run = |permits: u64| {
        with(&format!(
            r#"{{"system":{{"lease":true,"fence":true}},"mode":"semaphore","permits":{permits}}}"#
        ))
        .acq_mode(0, "semaphore")
        .got(0, "a", 1)
        .acq_mode(1, "semaphore")
        .got(1, "b", 2)
        .acq_mode(2, "semaphore")
        .got(2, "c", 3)
    };
    run(3).clean();
    run(2).violates(SERVICE);
    // One that lapsed but is still claimed beside N others.
    let two = || {
        with(r#"{"system":{"lease":true,"fence":true},"mode":"semaphore","permits":1}"#)
            .acq_mode(0, "semaphore")
            .got(0, "a", 1)
            .t(1098)
            .acq_mode(1, "semaphore")
            .got(1, "b", 2)
    };
    two().clean();
    two().t(1300).claims(0, "a", 1, 1200).violates(CLIENT);
}

#[test]
fn re_entrant_grants_of_one_owner_are_one() {
    let run = r#"{"system":{"lease":true,"fence":true,"reentrant":true}}"#;
    let s = || with(run).grant(0, "a", 1).grant(0, "a", 1);
    s().clean();
    // Released once of twice: still held.
    s().rel(0, "a", 1)
        .held(0, true)
        .grant(1, "b", 2)
        .violates(SERVICE);
    s().rel(0, "a", 1)
        .held(0, true)
        .rel(0, "a", 1)
        .held(0, true)
        .grant(1, "b", 2)
        .clean();
    // Equal tokens of two clients are two owners (a token made of a clock).
    script().grant(0, "a", 1).grant(1, "a", 2).violates(SERVICE);
}

#[test]
fn a_renewal_that_revives_a_lost_lease_is_the_services() {
    two(1100)
        .t(1200)
        .renewed(0, "a", 1, "true", 1150)
        .violates(SERVICE)
        .violates("owner-only");
    two(1100).t(1200).renewed(0, "a", 1, "false", 1150).clean();
}

#[test]
fn one_that_waited_longer_than_a_lease_and_then_acts_is_nobodys_fault() {
    script()
        .grant(0, "a", 1)
        .acq(1)
        .t(900)
        .renewed(0, "a", 1, "true", 900)
        .t(1500)
        .rel(0, "a", 1)
        .held(0, true)
        .got(1, "b", 2)
        .t(1600)
        .wr(1, "b", 2, "v", "null")
        .ok(1)
        .claims(1, "b", 2, 1600)
        .clean();
}
