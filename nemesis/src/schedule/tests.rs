#![allow(clippy::unwrap_used)]
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::process::ProcId;

const TTL: Duration = Duration::from_secs(2);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn plan(json: serde_json::Value) -> Plan {
    serde_json::from_value(json).unwrap()
}

fn scheduler(plans: &[serde_json::Value], seed: u64) -> Scheduler {
    Scheduler::new(plans.iter().cloned().map(plan).collect(), seed, TTL).unwrap()
}

fn cue(kind: CueKind, worker: u32, lock: &str) -> Cue {
    Cue::new(kind, worker, Some(Arc::from(lock)))
}

/// Runs time forward in 10 ms steps; every install settles at once and every heal too.
/// Gives `(ms, "install pause" | "heal")`.
fn play(s: &mut Scheduler, to: u64) -> Vec<(u64, String)> {
    let mut seen = Vec::new();
    for t in (0..=to).step_by(10) {
        let mut todo = s.tick(ms(t));
        while let Some(a) = todo.pop() {
            match a {
                Action::Install { order } => {
                    seen.push((t, format!("install {}", order.fault)));
                    todo.extend(s.settled(&order.id, &[ProcId::Node(0)], true, ms(t)));
                }
                Action::Heal { id, .. } => {
                    seen.push((t, "heal".into()));
                    s.healed(&id, ms(t));
                }
                Action::Go { .. } => seen.push((t, "go".into())),
            }
        }
    }
    seen
}

fn times(seen: &[(u64, String)]) -> Vec<u64> {
    seen.iter().map(|(t, _)| *t).collect()
}

#[test]
fn a_fixed_time_fires_once() {
    let p = serde_json::json!({"fault": "pause", "target": "one", "at": "3s", "for": "1 ttl"});
    let seen = play(&mut scheduler(&[p], 1), 20_000);
    assert_eq!(
        seen,
        [(3000, "install pause".into()), (5000, "heal".into())]
    );
}

#[test]
fn a_cycle_repeats_after_calm_and_stops_at_its_count() {
    let p = serde_json::json!(
        {"fault": "pause", "target": "all", "calm": "1s", "for": "500ms", "count": 3});
    let seen = play(&mut scheduler(&[p], 1), 20_000);
    assert_eq!(times(&seen), [1000, 1500, 2500, 3000, 4000, 4500]);
}

#[test]
fn a_plan_names_the_lock_of_its_holder() {
    let p = serde_json::json!(
        {"fault": "pause", "target": "holder", "at": "0s", "lock": "L1", "until": "another-grant"});
    let mut s = scheduler(&[p], 1);
    let actions = s.tick(ms(0));
    let id = install_id(&actions);
    assert!(
        matches!(&actions[0], Action::Install { order } if order.lock.as_deref() == Some("L1"))
    );
    s.settled(&id, &[ProcId::Worker(0)], true, ms(5));
    assert!(s.on_cue(&cue(CueKind::Grant, 1, "L0"), ms(10)).is_empty());
    assert!(s.on_cue(&cue(CueKind::Grant, 0, "L1"), ms(10)).is_empty());
    assert_eq!(s.on_cue(&cue(CueKind::Grant, 1, "L1"), ms(10)).len(), 1);
}

#[test]
fn a_mix_draws_by_weight_and_by_seed_alone() {
    let p = serde_json::json!({"calm": "100ms..300ms", "for": "50ms", "mix": [
        {"fault": "pause", "target": "one", "weight": 3},
        {"fault": "kill", "target": "one"},
        {"fault": "snapshot", "target": "one", "weight": 0}]});
    let a = play(&mut scheduler(std::slice::from_ref(&p), 7), 60_000);
    let b = play(&mut scheduler(std::slice::from_ref(&p), 7), 60_000);
    let c = play(&mut scheduler(&[p], 8), 60_000);
    assert_eq!(a, b);
    assert_ne!(a, c);
    let n = |what: &str| a.iter().filter(|(_, w)| w == what).count();
    let (pauses, kills) = (n("install pause"), n("install kill"));
    assert!(pauses + kills > 150 && n("install snapshot") == 0);
    assert!(pauses > 2 * kills && pauses < 5 * kills, "{pauses} {kills}");
}

#[test]
fn together_means_one_install_each_and_one_heal_each() {
    let p = serde_json::json!({"fault": "pause", "target": "node:0", "at": "1s", "for": "1s",
        "with": [{"fault": "kill", "target": "node:1"}]});
    let seen = play(&mut scheduler(&[p], 1), 5000);
    assert_eq!(times(&seen), [1000, 1000, 2000, 2000]);
}

#[test]
fn an_event_fires_after_its_delay_and_not_twice_at_once() {
    let p = serde_json::json!({"fault": "pause", "target": "trigger", "for": "1.5 ttl",
        "after": "0.2 ttl", "on": {"event": "grant", "lock": "L0", "worker": 1}});
    let mut s = scheduler(&[p], 1);
    assert!(s.on_cue(&cue(CueKind::Grant, 0, "L0"), ms(0)).is_empty());
    assert!(s.on_cue(&cue(CueKind::Grant, 1, "L1"), ms(0)).is_empty());
    assert!(s.on_cue(&cue(CueKind::Write, 1, "L0"), ms(0)).is_empty());
    assert!(s.on_cue(&cue(CueKind::Grant, 1, "L0"), ms(100)).is_empty());
    assert_eq!(s.next_tick(), Some(ms(500)));
    assert!(s.on_cue(&cue(CueKind::Grant, 1, "L0"), ms(200)).is_empty());
    let seen = play(&mut s, 10_000);
    assert_eq!(times(&seen), [500, 3500]);
    assert!(
        s.on_cue(&cue(CueKind::Grant, 1, "L0"), ms(10_000))
            .is_empty()
    );
    assert!(matches!(s.tick(ms(10_400))[..], [Action::Install { .. }]));
}

#[test]
fn skip_and_not_before_let_events_pass() {
    let p = serde_json::json!({"fault": "pause", "target": "trigger", "for": "1s",
        "on": {"event": "grant", "skip": 2, "not_before": "1s"}});
    let mut s = scheduler(&[p], 1);
    let grant = cue(CueKind::Grant, 0, "L0");
    for t in [0, 500, 1000, 1100] {
        assert!(s.on_cue(&grant, ms(t)).is_empty(), "{t}");
    }
    assert_eq!(s.on_cue(&grant, ms(1200)).len(), 1);
}

fn kleppmann() -> serde_json::Value {
    serde_json::json!({"fault": "pause", "target": "worker:0", "until": "another-write",
        "on": {"event": "point", "point": "before-store-write", "worker": 0, "lock": "story"}})
}

fn install_id(actions: &[Action]) -> String {
    match actions {
        [Action::Install { order }] => order.id.clone(),
        other => panic!("expected one install: {other:?}"),
    }
}

#[test]
fn the_kleppmann_pause() {
    let mut s = scheduler(&[kleppmann()], 1);
    assert_eq!(
        s.stop_at(0, Some("story"), ms(0)),
        Some("before-store-write")
    );
    assert_eq!(s.stop_at(0, Some("L1"), ms(0)), None);
    assert_eq!(s.stop_at(1, Some("story"), ms(0)), None);

    let stands = cue(CueKind::Point, 0, "story").at_point("before-store-write", 9);
    let id = install_id(&s.on_cue(&stands, ms(10)));
    // A second client of the worker that came to the point meanwhile is let go at once.
    assert_eq!(s.stop_at(0, Some("story"), ms(11)), None);
    let second = cue(CueKind::Point, 0, "story").at_point("before-store-write", 10);
    assert_eq!(
        s.on_cue(&second, ms(11)),
        [Action::Go { worker: 0, op: 10 }]
    );
    // Grants before the pause holds do not count.
    assert!(
        s.on_cue(&cue(CueKind::Grant, 2, "story"), ms(12))
            .is_empty()
    );
    // `go` only once the pause is proven.
    let go = s.settled(&id, &[ProcId::Worker(0)], true, ms(15));
    assert_eq!(go, [Action::Go { worker: 0, op: 9 }]);

    assert!(
        s.on_cue(&cue(CueKind::Write, 2, "story"), ms(20))
            .is_empty(),
        "write without grant"
    );
    assert!(s.on_cue(&cue(CueKind::Grant, 1, "L1"), ms(30)).is_empty());
    assert!(
        s.on_cue(&cue(CueKind::Write, 1, "L1"), ms(31)).is_empty(),
        "another lock"
    );
    assert!(
        s.on_cue(&cue(CueKind::Grant, 1, "story"), ms(2100))
            .is_empty(),
        "grant alone"
    );
    assert!(
        s.on_cue(&cue(CueKind::Write, 2, "story"), ms(2110))
            .is_empty(),
        "not the grantee"
    );
    let heal = s.on_cue(&cue(CueKind::Write, 1, "story"), ms(2120));
    assert!(
        matches!(&heal[..], [Action::Heal { id: h, .. }] if *h == id),
        "{heal:?}"
    );
    s.healed(&id, ms(2130));
    assert_eq!(s.stop_at(0, Some("story"), ms(3000)), None, "once only");
}

#[test]
fn without_the_point_the_grant_triggers() {
    let mut s = scheduler(&[kleppmann()], 1);
    s.lacks_point(0, "before-store-write");
    assert_eq!(s.stop_at(0, Some("story"), ms(0)), None);
    assert!(s.on_cue(&cue(CueKind::Grant, 1, "story"), ms(5)).is_empty());
    install_id(&s.on_cue(&cue(CueKind::Grant, 0, "story"), ms(10)));
}

#[test]
fn a_skipped_install_still_lets_the_worker_go() {
    let mut s = scheduler(&[kleppmann()], 1);
    let stands = cue(CueKind::Point, 0, "story").at_point("before-store-write", 9);
    let id = install_id(&s.on_cue(&stands, ms(10)));
    assert_eq!(
        s.settled(&id, &[], false, ms(11)),
        [Action::Go { worker: 0, op: 9 }]
    );
    assert!(s.next_tick().is_none());
    assert!(s.end(ms(100)).is_empty());
}

#[test]
fn until_is_bounded_by_at_most_and_delayed_by_for() {
    let mut bounded = kleppmann();
    bounded["at_most"] = "5s".into();
    bounded["for"] = "3s".into();
    for (write_at, heal_at) in [(None, 5010), (Some(500), 3010), (Some(4000), 4000)] {
        let mut s = scheduler(&[bounded.clone()], 1);
        let stands = cue(CueKind::Point, 0, "story").at_point("before-store-write", 9);
        let id = install_id(&s.on_cue(&stands, ms(10)));
        s.settled(&id, &[ProcId::Worker(0)], true, ms(10));
        let mut healed = None;
        for t in (10..8000).step_by(10) {
            let mut out = s.tick(ms(t));
            if Some(t) == write_at {
                out.extend(s.on_cue(&cue(CueKind::Grant, 1, "story"), ms(t)));
                out.extend(s.on_cue(&cue(CueKind::Write, 1, "story"), ms(t)));
            }
            if !out.is_empty() {
                assert!(healed.is_none(), "healed twice");
                healed = Some(t);
            }
        }
        assert_eq!(healed, Some(heal_at));
    }
}

#[test]
fn the_end_heals_what_holds_lets_go_and_starts_nothing() {
    let mut slow = kleppmann();
    slow["after"] = "1s".into();
    let held = serde_json::json!({"fault": "pause", "target": "node:0", "at": "0s"});
    let late = serde_json::json!({"fault": "pause", "target": "node:0", "at": "1s", "for": "1s"});
    let mut s = scheduler(&[slow, held, late], 1);
    let id = install_id(&s.tick(ms(0)));
    s.settled(&id, &[ProcId::Node(0)], true, ms(0));
    let stands = cue(CueKind::Point, 0, "story").at_point("before-store-write", 9);
    assert!(s.on_cue(&stands, ms(100)).is_empty(), "waits for `after`");
    let out = s.end(ms(500));
    assert_eq!(out.len(), 2, "{out:?}");
    assert_eq!(out[0], Action::Go { worker: 0, op: 9 });
    assert!(matches!(&out[1], Action::Heal { id: h, .. } if *h == id));
    s.healed(&id, ms(510));
    assert!(s.tick(ms(5000)).is_empty());
    assert_eq!(s.next_tick(), None);
    assert_eq!(
        s.on_cue(&stands, ms(5000)),
        [Action::Go { worker: 0, op: 9 }]
    );
}

#[test]
fn an_install_that_ends_after_the_end_is_healed() {
    let held = serde_json::json!({"fault": "pause", "target": "node:0", "at": "0s"});
    let mut s = scheduler(&[held], 1);
    let id = install_id(&s.tick(ms(0)));
    assert!(s.end(ms(10)).is_empty());
    assert!(matches!(
        s.settled(&id, &[], true, ms(20))[..],
        [Action::Heal { .. }]
    ));
}

#[test]
fn a_saved_schedule_replays_the_same_orders_at_the_same_times() {
    let p = serde_json::json!({"calm": "100ms..900ms", "for": "200ms..1s", "mix": [
        {"fault": "pause", "target": "one"}, {"fault": "kill", "target": "minority"}]});
    let mut first = scheduler(std::slice::from_ref(&p), 7);
    let a = play(&mut first, 20_000);
    let text: String = first
        .take_lines()
        .iter()
        .map(|l| serde_json::to_string(l).unwrap() + "\n")
        .collect();
    let torn = format!("{text}{{\"line\":\"act");
    let lines = read_lines(&torn).unwrap();
    let mut again = Scheduler::replay(&lines).unwrap();
    let b = play(&mut again, 40_000);
    let installs = |x: &[(u64, String)]| -> Vec<_> {
        x.iter()
            .filter(|(_, w)| w.starts_with("install"))
            .cloned()
            .collect()
    };
    assert_eq!(installs(&a), installs(&b));
    let drawn = |lines: &[Line]| -> Vec<u64> {
        let order = |l: &Line| match l {
            Line::Action {
                action: Action::Install { order },
                ..
            } => Some(order.draw),
            _ => None,
        };
        lines.iter().filter_map(order).collect()
    };
    assert_eq!(drawn(&lines), drawn(&again.take_lines()));
    assert!(read_lines("{}\n").is_err());
    assert!(Scheduler::replay(&[]).is_err());
}

#[test]
fn plans_that_mean_nothing_are_refused() {
    use serde_json::json;
    let bad = [
        json!({"fault": "pause", "target": "one"}),
        json!({"target": "one", "at": "1s"}),
        json!({"fault": "pause", "at": "1s"}),
        json!({"fault": "paus", "target": "one", "at": "1s"}),
        json!({"fault": "pause", "target": "one", "at": "1s", "params": {"x": 1}}),
        json!({"fault": "pause", "target": "one", "at": "1s", "on": {"event": "grant"}}),
        json!({"fault": "pause", "target": "one", "on": {"event": "point"}}),
        json!({"fault": "pause", "target": "one", "on": {"event": "grant", "point": "x"}}),
        json!({"fault": "pause", "target": "one", "calm": "1s"}),
        json!({"fault": "pause", "target": "one", "at": "1s", "after": "1s"}),
        json!({"fault": "pause", "target": "one", "at": "1s", "at_most": "1s"}),
        json!({"calm": "1s", "for": "1s", "mix": [{"fault": "pause", "target": "one", "weight": 0}]}),
    ];
    for p in bad {
        assert!(plan(p.clone()).check(0).is_err(), "{p}");
    }
    let unreadable = [
        json!({"fault": "pause", "target": "one", "att": "1s"}),
        json!({"fault": "pause", "target": "somebody", "at": "1s"}),
        json!({"fault": "pause", "target": ["one", "x"], "at": "1s"}),
        json!({"fault": "pause", "target": "one", "at": "soon"}),
        json!({"fault": "pause", "target": "one", "on": {"event": "grants"}}),
    ];
    for p in unreadable {
        assert!(serde_json::from_value::<Plan>(p.clone()).is_err(), "{p}");
    }
}
