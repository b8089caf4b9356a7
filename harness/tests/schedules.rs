#![allow(clippy::unwrap_used)]
//! Every way in which a plan can be timed, in one run, and the run's schedule replayed.

mod common;

use std::path::Path;

use common::*;
use serde_json::Value;

/// Plans in this order: a fixed time, a cycle, a weighted mix, an event with a delay, another event, and a
/// combination on an event.
const SCENARIO: &str = r#"
workers = 5
clients = 2
[lease]
ttl = "1s"
[load]
rate = 30.0
duration = "9s"
calm = "2s"
[story]
lock = "story"
rivals = 1
work = "0.6 ttl"
wait = "0.5 ttl"
pause = "0.1 ttl"

[[faults]]
fault = "pause"
target = "worker:1"
at = "1s"
for = "200ms"

[[faults]]
fault = "pause"
target = "worker:2"
calm = "500ms..900ms"
for = "150ms"
count = 3

[[faults]]
calm = "600ms..1s"
for = "100ms"
mix = [
  { fault = "pause", target = "worker:3", weight = 3 },
  { fault = "kill", target = "worker:4" },
]

[[faults]]
fault = "pause"
target = "trigger"
on = { event = "grant", worker = 0, lock = "story", not_before = "1500ms" }
after = "0.2 ttl"
for = "1.5 ttl"
count = 1

[[faults]]
fault = "pause"
target = "worker:1"
on = { event = "lost", worker = 0, lock = "story" }
for = "100ms"
count = 1

[[faults]]
fault = "pause"
target = "worker:1"
on = { event = "write", worker = 1, lock = "story", not_before = "6s" }
for = "100ms"
count = 1
with = [{ fault = "pause", target = "node:0" }]

[expect]
double-holder.service = "holds"
double-holder.limit = "any"
double-holder.client = "any"
lease-overrun = "any"
available = "any"
linearizable = "any"
freed-in-time = "any"
"#;

/// Actions of a schedule: (plan, nth, ns, action).
fn actions(run: &Path) -> Vec<(u64, u64, i64, Value)> {
    let text = std::fs::read_to_string(run.join("schedule.jsonl")).unwrap();
    let lines = text.lines().skip(1);
    let parsed = lines.map(|l| serde_json::from_str::<Value>(l).unwrap());
    let n = |v: &Value| v.as_i64().unwrap();
    parsed
        .map(|l| {
            let (plan, nth) = (n(&l["plan"]), n(&l["nth"]));
            (plan as u64, nth as u64, n(&l["time"]), l["action"].clone())
        })
        .collect()
}

fn of(run: &Path, plan: u64, what: &str) -> Vec<(u64, i64, Value)> {
    let all = actions(run).into_iter();
    all.filter(|(p, _, _, a)| *p == plan && a["do"] == what)
        .map(|(_, nth, time, a)| (nth, time, a))
        .collect()
}

const MS: i64 = 1_000_000;

/// When the load began, and when each event of this kind of worker 0 came, in nanoseconds of the history.
fn events(run: &Path, found: impl Fn(&Value) -> bool) -> (i64, Vec<i64>) {
    let all = history(run);
    let time = |e: &Value| e["time"].as_i64().unwrap();
    let load = all.iter().find(|e| e["value"]["phase"] == "load").unwrap();
    let times = all.iter().filter(|e| found(e)).map(time).collect();
    (time(load), times)
}

fn timed_as_written(run: &Path) {
    let (fixed, end) = (of(run, 0, "install"), of(run, 0, "heal"));
    assert_eq!((fixed.len(), end.len()), (1, 1));
    assert!(fixed[0].1 >= 1000 * MS && end[0].1 - fixed[0].1 >= 200 * MS);

    let (on, off) = (of(run, 1, "install"), of(run, 1, "heal"));
    assert_eq!((on.len(), off.len()), (3, 3));
    for (healed, next) in off.iter().zip(&on[1..]) {
        assert!(next.1 - healed.1 >= 500 * MS, "calm lies between");
    }

    let mixed = of(run, 2, "install");
    let named: Vec<String> = mixed
        .iter()
        .map(|(_, _, a)| format!("{} {}", a["order"]["fault"], a["order"]["targets"]))
        .collect();
    assert!(mixed.len() >= 4, "{named:?}");
    let known = |n: &String| n.contains("pause") && n.contains("worker:3") || n.contains("kill");
    assert!(named.iter().all(known), "{named:?}");

    let (delayed, ends) = (of(run, 3, "install"), of(run, 3, "heal"));
    assert_eq!((delayed.len(), ends.len()), (1, 1));
    let granted = |e: &Value| e["f"] == "acquire" && e["type"] == "ok" && e["key"] == "story";
    let (load, grants) = events(run, granted);
    let at = load + delayed[0].1;
    assert!(
        grants
            .iter()
            .any(|g| *g <= at - 199 * MS && *g >= load + 1500 * MS)
    );
    assert!(ends[0].1 - delayed[0].1 >= 1500 * MS);

    let after_loss = of(run, 4, "install");
    let lost = |e: &Value| e["f"] == "lost" && e["process"] == "w0" && e["key"] == "story";
    let (load, losses) = events(run, lost);
    assert_eq!(after_loss.len(), 1);
    assert!(losses.iter().any(|l| *l <= load + after_loss[0].1));

    let together = of(run, 5, "install");
    assert_eq!(together.len(), 2);
    assert!(together.iter().all(|(nth, ..)| *nth == 1));
    assert_eq!(of(run, 5, "heal").len(), 2);
}

#[test]
fn plans_keep_their_times_and_a_replay_repeats_them() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("own.toml"), SCENARIO).unwrap();
    let out = fencepost(dir.path(), "run own.toml --seed 11 --out run");
    assert_eq!(code(&out), 0, "{}", told(&out));
    let run = dir.path().join("run");
    timed_as_written(&run);

    // Another seed for the load: the schedule's own is in its file.
    let line = "run own.toml --seed 12 --replay run/schedule.jsonl --out again";
    let out = fencepost(dir.path(), line);
    assert_eq!(code(&out), 0, "{}", told(&out));
    let again = dir.path().join("again");
    timed_as_written(&again);
    for plan in 0..6 {
        let (first, second) = (of(&run, plan, "install"), of(&again, plan, "install"));
        // The last of an endless plan may fall behind the end of the load.
        assert!(first.len().abs_diff(second.len()) <= 1, "plan {plan}");
        for (a, b) in first.iter().zip(&second) {
            assert_eq!(a.0, b.0, "plan {plan}");
            for member in ["fault", "targets", "params", "draw"] {
                assert_eq!(a.2["order"][member], b.2["order"][member], "plan {plan}");
            }
            if plan < 3 {
                assert!(b.1 >= a.1, "plan {plan}: not before its recorded time");
            }
        }
    }
    nothing_left(&again);
}
