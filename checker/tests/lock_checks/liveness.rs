//! freed-in-time, fair, available: demanded only in the calm part and after the heal marker.

use fencepost_checker::verdict::Verdict;

use crate::script::{Script, script, with};

const FREED: &str = "freed-in-time";

fn killed() -> Script {
    script()
        .grant(0, "a", 1)
        .t(10)
        .fault_on("kill", "worker:0")
        .named("w0", "exit", r#"{"reason":"killed","expected":true}"#)
        .named("controller", "phase", r#"{"phase":"faults-end"}"#)
}

#[test]
fn a_dead_holders_lock_is_granted_within_ttl_times_factor() {
    // Allowed: 1 s × 2.
    let s = || killed().acq(1);
    // B asked after the clock began: its wait proves nothing by itself.
    s().t(2500).got(1, "b", 2).clean();
    let early = || {
        script()
            .grant(0, "a", 1)
            .acq(1)
            .t(10)
            .fault_on("kill", "worker:0")
            .named("w0", "exit", r#"{"reason":"killed","expected":true}"#)
            .named("controller", "phase", r#"{"phase":"faults-end"}"#)
    };
    early().t(1500).got(1, "b", 2).holds(FREED);
    early().t(2500).got(1, "b", 2).violates(FREED);
    // Refused, though asked for after the deadline.
    killed()
        .t(2500)
        .acq(1)
        .t(2600)
        .fail(1, "busy")
        .violates(FREED);
    killed().t(1500).acq(1).t(2600).fail(1, "busy").clean();
    // Somebody else had it by then: his ok was only read later.
    killed()
        .acq(2)
        .t(2500)
        .acq(1)
        .t(2600)
        .fail(1, "busy")
        .got(2, "c", 2)
        .clean();
}

#[test]
fn no_clock_runs_while_faults_last_or_a_live_worker_holds() {
    script()
        .grant(0, "a", 1)
        .acq(1)
        .fault_on("cut", "node:0")
        .fault_event("f2", "kill", "install", "started", "worker:0")
        .fault_event("f2", "kill", "install", "installed", "worker:0")
        .t(9000)
        .got(1, "b", 2)
        .clean();
    // The servers are dead from then on.
    script()
        .grant(0, "a", 1)
        .acq(1)
        .t(50)
        .rel(0, "a", 1)
        .t(52)
        .held(0, true)
        .t(60)
        .fault_on("kill", "node:0")
        .t(9000)
        .got(1, "b", 2)
        .clean();
    // Renewed all the while by a client that lives.
    script()
        .grant(0, "a", 1)
        .acq(1)
        .t(9000)
        .fail(1, "busy")
        .clean();
}

/// A holder is killed at 600 ms; whatever came before it.
fn dies(before: Script) -> Script {
    before
        .t(600)
        .fault_event("f9", "kill", "install", "started", "worker:0")
        .fault_event("f9", "kill", "install", "installed", "worker:0")
        .named("w0", "exit", r#"{"reason":"killed","expected":true}"#)
}

#[test]
fn between_faults_it_is_demanded_once_none_is_in_force() {
    let asked = || script().grant(0, "a", 1).acq(1).t(100);
    let cut = || asked().fault_on("cut", "node:0");
    let healed = || dies(cut().t(500).fault_off("cut", "node:0"));
    healed().t(1700).got(1, "b", 2).holds(FREED);
    healed().t(2700).got(1, "b", 2).violates(FREED);
    // The first still holds; another begins; nobody is asked any more.
    dies(cut()).t(2700).got(1, "b", 2).clean();
    let again = healed().fault_on("cut", "node:1");
    again.t(2700).got(1, "b", 2).clean();
    let drain = healed().named("controller", "phase", r#"{"phase":"drain"}"#);
    let late = drain.fault_event("f9", "kill", "heal", "healed", "worker:0");
    late.t(2700).got(1, "b", 2).clean();
    // A copy of a disk bends nothing, and is never healed.
    let copied = r#"{"id":"f1","fault":"snapshot","kind":"disk","action":"install","targets":["node:0"],"affects":[],"status":"installed","receipt":{}}"#;
    let copied = || dies(asked().named("nemesis", "fault", copied));
    copied().t(2700).got(1, "b", 2).violates(FREED);
}

#[test]
fn a_release_once_more_prolongs_nothing() {
    let released = script()
        .grant(0, "a", 1)
        .acq(1)
        .t(50)
        .rel(0, "a", 1)
        .held(0, true);
    let again = released.t(1500).rel(0, "a", 1).held(0, false);
    again
        .t(2900)
        .got(1, "b", 2)
        .holds("owner-only")
        .violates(FREED);
}

#[test]
fn a_lock_that_stays_held_after_its_release_is_found() {
    let s = || {
        script()
            .grant(0, "a", 1)
            .acq(1)
            .t(50)
            .rel(0, "a", 1)
            .t(52)
            .held(0, true)
    };
    s().t(60).got(1, "b", 2).clean();
    s().t(2900).got(1, "b", 2).violates(FREED);
    s().t(2900).fail(1, "busy").clean();
    s().t(60)
        .fail(1, "busy")
        .t(2900)
        .acq(1)
        .fail(1, "busy")
        .violates(FREED);
}

#[test]
fn a_ttl_that_restarts_after_the_faults_is_no_violation() {
    script()
        .grant(0, "a", 1)
        .acq(1)
        .t(10)
        .fault_on("kill", "worker:0")
        .t(900)
        .fault_event("f7", "kill", "install", "started", "node:0")
        .fault_event("f7", "kill", "install", "installed", "node:0")
        .t(2000)
        .named("controller", "phase", r#"{"phase":"faults-end"}"#)
        .t(3500)
        .got(1, "b", 2)
        .clean();
}

fn fifo() -> Script {
    with(r#"{"system":{"lease":true,"fence":true,"fifo":true},"lease":{"ttl_ms":1000}}"#)
}

fn queued(s: Script, p: u64) -> Script {
    s.acq(p)
        .named(&format!("w{p}"), "queued", &format!(r#"{{"process":{p}}}"#))
}

#[test]
fn a_waiter_that_is_overtaken() {
    let s = || {
        queued(queued(fifo().grant(0, "a", 1), 1), 2)
            .rel(0, "a", 1)
            .held(0, true)
    };
    s().got(1, "b", 2)
        .rel(1, "b", 2)
        .held(1, true)
        .got(2, "c", 3)
        .clean()
        .holds("fair");
    let over = || s().got(2, "c", 2).rel(2, "c", 2).held(2, true);
    over().got(1, "b", 3).violates("fair");
    // It left the queue before; or it was first after all, by its fence.
    over().fail(1, "busy").clean();
    over().got(1, "b", 1).unknown("fair");
    // Faulted waiters lose their place; no order is promised elsewhere.
    queued(
        queued(fifo().grant(0, "a", 1), 1).fault_on("pause", "worker:1"),
        2,
    )
    .rel(0, "a", 1)
    .held(0, true)
    .got(2, "c", 2)
    .rel(2, "c", 2)
    .held(2, true)
    .got(1, "b", 3)
    .clean();
    let mut free = over().got(1, "b", 3);
    free.facts.system.fifo = false;
    free.unknown("fair");
}

#[test]
fn waiters_whose_places_are_not_certain_are_not_compared() {
    // Both asked before either was heard to be queued.
    fifo()
        .grant(0, "a", 1)
        .acq(1)
        .acq(2)
        .named("w1", "queued", r#"{"process":1}"#)
        .named("w2", "queued", r#"{"process":2}"#)
        .rel(0, "a", 1)
        .held(0, true)
        .got(2, "c", 2)
        .rel(2, "c", 2)
        .held(2, true)
        .got(1, "b", 3)
        .clean();
}

#[test]
fn a_wake_up_that_is_lost() {
    let s = || {
        queued(fifo().grant(0, "a", 1), 1)
            .rel(0, "a", 1)
            .t(20)
            .held(0, true)
    };
    s().t(400).got(1, "b", 2).clean();
    s().t(900).got(1, "b", 2).violates("fair");
}

fn woken(s: Script, p: u64) -> Script {
    s.named(&format!("w{p}"), "woken", &format!(r#"{{"process":{p}}}"#))
}

/// Process 0 holds, 1 to `n` wait; they take their turns, each hand-over waking these.
fn turns(n: u64, wakes: impl Fn(u64) -> std::ops::Range<u64>) -> Script {
    let begun = fifo().grant(0, "p0", 1);
    let all_wait = (1..=n).fold(begun, queued);
    (1..=n).fold(all_wait, |s, p| {
        let before = p - 1;
        let left = s.rel(before, &format!("p{before}"), p).held(before, true);
        let rung = wakes(p).fold(left, woken);
        rung.got(p, &format!("p{p}"), p + 1)
    })
}

#[test]
fn a_hand_over_wakes_one_waiter() {
    turns(6, |p| p..p + 1).clean().holds("herd");
    // Each wakes all who wait still: 6 + 5 + 4 + 3 + 2 + 1, and seven asked.
    turns(6, |_| 0..0).unknown("herd");
    turns(6, |p| p..7).violates("herd").holds("fair");
    let evidence = turns(6, |p| p..7).says("herd", Verdict::Violated);
    assert!(evidence.len() <= 6, "{evidence:?}");
    // One hand-over, and nobody behind: a herd could not show.
    turns(1, |p| p..p + 1).unknown("herd");
}

#[test]
fn a_waiter_that_gives_up_may_wake_the_next() {
    let s = queued(queued(queued(fifo().grant(0, "a", 1), 1), 2), 3);
    let s = woken(woken(s.fail(1, "busy"), 2).fail(2, "busy"), 3);
    let s = woken(s.rel(0, "a", 1).held(0, true), 3);
    s.got(3, "d", 2).clean();
}

#[test]
fn what_a_fault_may_repeat_is_not_counted() {
    let s = |fault: bool| {
        let s = queued(queued(fifo().grant(0, "a", 1), 1), 2);
        let s = if fault {
            s.fault_on("cut", "node:0")
        } else {
            s
        };
        (0..5)
            .fold(s, |s, _| woken(s, 2))
            .rel(0, "a", 1)
            .held(0, true)
    };
    let end = |s: Script| s.got(1, "b", 2).rel(1, "b", 2).held(1, true).got(2, "c", 3);
    end(s(true)).clean();
    end(s(false)).violates("herd");
}

#[test]
fn acquires_in_the_calm_part_succeed() {
    let thrice = |one: fn(Script, u64) -> Script| {
        (1..=3).fold(script().grant(0, "a", 1), |s, p| one(s.acq(p), p))
    };
    thrice(|s, p| s.fail(p, "busy")).holds("available");
    thrice(|s, p| s.fail(p, "session-expired")).holds("available");
    thrice(|s, p| s.fail(p, "connection refused")).violates("available");
    thrice(|s, p| s.info(p)).violates("available");
    // Once is a hiccup. Once there was a fault, failures are to be expected.
    script().grant(0, "a", 1).acq(1).info(1).holds("available");
    (1..=3)
        .fold(script().fault_on("cut", "node:0"), |s, p| s.acq(p).info(p))
        .clean();
}

#[test]
fn recovery_is_counted_from_the_heal_marker() {
    let s = |ms: i64| {
        script()
            .fault_on("cut", "node:0")
            .t(500)
            .fault_off("cut", "node:0")
            .named("controller", "phase", r#"{"phase":"healed"}"#)
            .acq(1)
            .t(500 + ms)
    };
    let fast = s(2000).got(1, "b", 2).holds("available");
    assert!(
        fast.judge()["available"].reason.contains("2.000 s after"),
        "recovery time"
    );
    s(10_500).got(1, "b", 2).violates("available");
    s(10_500).info(1).violates("available");
    let none = s(1).clean();
    assert_eq!(none.judge()["available"].verdict, Verdict::Unknown);
}
