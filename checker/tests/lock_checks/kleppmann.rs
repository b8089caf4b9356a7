//! The main scenario: acquire, freeze past the lease, a second holder, the stale write.

use fencepost_checker::verdict::Verdict;

use crate::script::{Script, script};

/// Worker 0 is stopped between its own deadline check and the socket write.
fn pause_at_the_point() -> Script {
    script()
        .grant(0, "a", 33)
        .t(100)
        .wr(0, "a", 33, "v1", "null")
        .point(0, "reached")
        .fault_on("pause", "worker:0")
        .point(0, "go")
        .acq(1)
        .t(1100)
        .got(1, "b", 34)
        .wr(1, "b", 34, "v2", "null")
        .t(1120)
        .ok(1)
        .t(1500)
        .fault_off("pause", "worker:0")
        .t(1510)
}

#[test]
fn unfenced_store_everything_that_a_fence_prevents_is_shown() {
    let s = pause_at_the_point()
        .ok(0)
        .lost(0, "a", 33, 1509)
        .log("write", "b", 34, "v2", true)
        .log("write", "a", 33, "v1", true)
        .violates("stale-fence-accepted")
        .violates("lost-update")
        .violates("lease-overrun")
        .violates("double-holder.limit")
        .holds("double-holder.service")
        .unknown("owner-only")
        .holds("unheld-write");
    let story = s.judge()["stale-fence-accepted"].story.clone();
    let texts: Vec<&str> = story.iter().map(|s| s.text.as_str()).collect();
    assert!(texts[0].contains("fence 33"), "{texts:?}");
    assert!(
        texts.last().unwrap().contains("33 is accepted after it"),
        "{texts:?}"
    );
    assert_eq!(s.judge()["double-holder.client"].verdict, Verdict::Holds);
}

#[test]
fn without_the_stores_log_the_history_alone_shows_the_limits() {
    // The point and the proven stop say that the write was sent after the worker was let go.
    pause_at_the_point()
        .ok(0)
        .violates("lease-overrun")
        .violates("double-holder.limit")
        .unknown("stale-fence-accepted");
}

#[test]
fn fenced_store_refuses_and_no_update_is_lost() {
    pause_at_the_point()
        .fail(0, "stale-fence")
        .last(r#"{"value":"v2","set":[]}"#)
        .log("write", "b", 34, "v2", true)
        .log("write", "a", 33, "v1", false)
        .holds("stale-fence-accepted")
        .holds("lost-update")
        .violates("lease-overrun")
        .violates("double-holder.limit")
        .holds("double-holder.service");
}

#[test]
fn a_client_that_refuses_by_its_own_deadline_does_no_harm() {
    pause_at_the_point().fail(0, "deadline").clean();
}

#[test]
fn a_write_in_flight_is_late_only_by_the_stores_order() {
    // No point, no pause: the write was invoked in time and answered late.
    let s = || {
        script()
            .grant(0, "a", 33)
            .t(900)
            .wr(0, "a", 33, "v1", "null")
            .acq(1)
            .t(1100)
            .got(1, "b", 34)
            .wr(1, "b", 34, "v2", "v1")
            .t(1110)
            .ok(1)
            .t(1200)
            .ok(0)
    };
    s().clean();
    s().log("write", "a", 33, "v1", true)
        .log("write", "b", 34, "v2", true)
        .clean();
    s().log("read", "b", 34, "", true)
        .log("write", "a", 33, "v1", true)
        .violates("lease-overrun")
        .violates("double-holder.client");
}

#[test]
fn a_write_of_unknown_outcome_overruns_once_the_log_shows_it() {
    let s = || {
        script()
            .grant(0, "a", 33)
            .t(900)
            .wr(0, "a", 33, "v1", "null")
            .t(1000)
            .info(0)
            .grant(1, "b", 34)
    };
    s().clean();
    s().log("read", "b", 34, "", true)
        .log("write", "a", 33, "v1", true)
        .violates("lease-overrun");
    s().log("write", "a", 33, "v1", true)
        .log("read", "b", 34, "", true)
        .clean();
}

#[test]
fn a_late_write_with_no_other_grant_is_late_not_violated() {
    let s = script()
        .grant(0, "a", 33)
        .t(1100)
        .wr(0, "a", 33, "v1", "null")
        .ok(0);
    let r = &s.judge()["lease-overrun"];
    assert_eq!(r.verdict, Verdict::Unknown);
    assert!(r.reason.contains("1 write late"), "{}", r.reason);
}
