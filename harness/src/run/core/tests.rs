#![allow(clippy::unwrap_used)]
//! The core against workers that are threads of the test.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::time::Instant;

use fencepost_nemesis::schedule::{Plan, Span};
use fencepost_workloads::protocol::{
    Answer, Fence, Granted, Hello, Reply, StoreConf, SystemConf, ToWorker, WorkerEvent,
};
use fencepost_workloads::protocol::{BEFORE_STORE_WRITE, Op, VERSION};

use super::*;
use crate::record::Recorder;

/// Plays a worker: `odd` may take a request over and write whatever it likes.
fn play(
    requests: std::io::PipeReader,
    mut out: std::io::PipeWriter,
    odd: impl Fn(u64, &Op) -> Option<String>,
) {
    let mut fence = 0;
    let mut stopped = Vec::new();
    for line in BufReader::new(requests).lines().map_while(Result::ok) {
        let mut bytes = Vec::new();
        let (id, op) = match ToWorker::parse(line.as_bytes()).unwrap() {
            ToWorker::Request(r) => (r.id, r.op),
            ToWorker::Go(id) => {
                assert!(stopped.contains(&id));
                Reply {
                    id,
                    answer: Answer::Done,
                }
                .write_line(&mut bytes);
                out.write_all(&bytes).unwrap();
                continue;
            }
        };
        if let Some(text) = odd(id, &op) {
            if text == "exit" || out.write_all(text.as_bytes()).is_err() {
                return;
            }
            continue;
        }
        let answer = match &op {
            Op::Init(i) => Answer::Hello(Hello {
                protocol: VERSION,
                name: "thread".into(),
                clients: i.clients,
                points: vec![BEFORE_STORE_WRITE.into()],
                deadline: true,
            }),
            Op::Acquire(_) => {
                fence += 1;
                Answer::Granted(Granted {
                    owner: "me".into(),
                    fence: Some(Fence(fence)),
                    ttl_ms: Some(1000),
                })
            }
            Op::Read(_) => Answer::Value(None),
            Op::Release(_) => Answer::Released { held: true },
            Op::Ping => Answer::Claims(vec![]),
            Op::Write(w) if w.stop_at.is_some() => {
                stopped.push(id);
                WorkerEvent::Point {
                    name: BEFORE_STORE_WRITE.into(),
                    id,
                }
                .write_line(&mut bytes);
                out.write_all(&bytes).unwrap();
                continue;
            }
            _ => Answer::Done,
        };
        Reply { id, answer }.write_line(&mut bytes);
        if out.write_all(&bytes).is_err() {
            return;
        }
    }
}

fn settings(workers: usize) -> Settings {
    Settings {
        seed: 1,
        workers,
        clients: 2,
        mode: Mode::Exclusive,
        permits: None,
        ttl_ms: Some(1000),
        ttl: Duration::from_secs(1),
        timeout: Duration::from_millis(100),
        rate: 200.0,
        locks: 4,
        workload: Workload::Register,
        work: Span::Fixed(Duration::ZERO),
        wait: Duration::ZERO,
        duration: 300_000_000,
        calm: 0,
        recovery: 0,
        story: None,
        events_end_faults: false,
        log_dir: "logs".into(),
    }
}

fn init(clients: u32) -> Box<Init> {
    let system = SystemConf {
        name: "none".into(),
        endpoints: vec![],
        params: Default::default(),
    };
    let store = StoreConf {
        kind: "none".into(),
        addr: String::new(),
        fenced: true,
        params: Default::default(),
    };
    Box::new(Init {
        protocol: VERSION,
        worker: 0,
        clients,
        seed: 1,
        system,
        store,
        ttl_ms: Some(1000),
        timeout_ms: 100,
    })
}

struct Ran {
    ending: Ending,
    schedule: usize,
    lines: Vec<serde_json::Value>,
}

impl Ran {
    fn count(&self, name: &str, value: &str) -> usize {
        self.lines.iter().filter(|l| l[name] == value).count()
    }
}

fn start(cfg: Settings, plans: Vec<Plan>, dir: &Path) -> Wiring {
    let rec = Recorder::create(dir, Instant::now()).unwrap();
    let scheduler = Scheduler::new(plans, 1, cfg.ttl).unwrap();
    let board = Arc::new(Board::new(cfg.locks));
    let schedule = std::fs::File::create(dir.join("schedule.jsonl")).unwrap();
    Core::wire(
        cfg,
        rec,
        scheduler,
        Box::new(schedule),
        board,
        Arc::new(Progress::default()),
    )
    .unwrap()
}

/// Runs with worker threads; `odd` sees (worker, id, op).
fn run(
    cfg: Settings,
    plans: Vec<Plan>,
    odd: impl Fn(usize, u64, &Op) -> Option<String> + Clone + Send + 'static,
    act: impl Fn(&CoreHandle, Action),
) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    let workers = cfg.workers;
    let clients = cfg.clients + 1;
    let Wiring {
        core,
        handle,
        mut notices,
    } = start(cfg, plans, dir.path());
    for worker in 0..workers {
        let (requests, to_worker) = std::io::pipe().unwrap();
        let (from_worker, answers) = std::io::pipe().unwrap();
        let odd = odd.clone();
        let exit = handle.clone();
        std::thread::spawn(move || {
            play(requests, answers, |id, op| odd(worker, id, op));
            exit.tell(Command::Exited {
                worker,
                how: "exit status: 0".into(),
            });
        });
        let link = Link::new(to_worker.into(), from_worker.into()).unwrap();
        handle.tell(Command::Attach {
            worker,
            link,
            init: init(clients),
        });
    }
    let thread = std::thread::spawn(move || core.run());
    while let Some(notice) = notices.blocking_recv() {
        match notice {
            Notice::Ready => handle.tell(Command::Load),
            Notice::Act(action) => act(&handle, action),
        }
    }
    let mut ending = thread.join().unwrap();
    ending.recorder.close().unwrap();
    let text = std::fs::read_to_string(dir.path().join("history.jsonl")).unwrap();
    let schedule = std::fs::read_to_string(dir.path().join("schedule.jsonl")).unwrap();
    Ran {
        ending,
        schedule: schedule.lines().count(),
        lines: text
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect(),
    }
}

#[test]
fn a_run_records_every_operation_and_ends_in_order() {
    let ran = run(settings(2), vec![], |_, _, _| None, |_, _| {});
    assert_eq!(ran.ending.failure, None);
    let invoked = ran.count("type", "invoke");
    assert_eq!(ran.count("type", "ok"), invoked);
    let phases: Vec<_> = ran
        .lines
        .iter()
        .filter(|l| l["f"] == "phase")
        .map(|l| &l["value"]["phase"])
        .collect();
    assert_eq!(phases, ["setup", "load", "faults-end", "healed", "drain"]);
    let f = &ran.ending.figures;
    assert!(
        f.due >= 59 && f.ended >= 30,
        "a slow machine may leave some: {} of {}",
        f.ended,
        f.due
    );
    assert_eq!(invoked as u64, f.ended * 4);
    assert!(ran.lines.iter().enumerate().all(|(n, l)| l["index"] == n));
    assert!(
        ran.count("f", "claims") >= 8,
        "each worker is pinged every TTL/20"
    );
    let exits: Vec<_> = ran.lines.iter().filter(|l| l["f"] == "exit").collect();
    assert!(exits.len() == 2 && exits.iter().all(|l| l["value"]["expected"] == true));
}

#[test]
fn an_unknown_outcome_retires_the_process_and_the_lock_is_released_by_the_next() {
    let odd = |_: usize, id: u64, op: &Op| match op {
        Op::Write(_) => Some(format!(
            "{{\"id\":{id},\"type\":\"info\",\"error\":\"timeout\"}}\n"
        )),
        _ => None,
    };
    let ran = run(settings(1), vec![], odd, |_, _| {});
    let info = ran
        .lines
        .iter()
        .position(|l| l["type"] == "info" && l["f"] == "write")
        .unwrap();
    let retired = &ran.lines[info]["process"];
    assert!(
        ran.lines[info + 1..]
            .iter()
            .all(|l| l["process"] != *retired)
    );
    assert_eq!(ran.lines[info + 1]["f"], "release");
}

#[test]
fn misbehaviour_ends_the_run_keeps_the_history_and_names_the_line() {
    for (text, wanted) in [
        ("what?\n", "worker:0 printed line"),
        ("exit", "worker:0 died: exit status: 0; the last line"),
        (
            "{\"id\":1,\"type\":\"ok\"}\n",
            "worker:0 answered request 1 once more at line",
        ),
    ] {
        let odd = move |worker: usize, id: u64, op: &Op| {
            (worker == 0 && id > 20 && matches!(op, Op::Read(_))).then(|| text.to_owned())
        };
        let began = Instant::now();
        let ran = run(
            Settings {
                duration: 30_000_000_000,
                ..settings(2)
            },
            vec![],
            odd,
            |_, _| {},
        );
        assert!(began.elapsed() < Duration::from_secs(20));
        let failure = ran.ending.failure.clone().unwrap();
        assert!(failure.starts_with(wanted), "{failure}");
        assert!(ran.count("type", "invoke") > 5);
        let open = ran.count("type", "invoke")
            - ran
                .lines
                .iter()
                .filter(|l| l["process"].is_number() && l["type"] != "invoke")
                .count();
        assert_eq!(
            open, 0,
            "every operation has a completion, unknown where there was no answer"
        );
    }
}

#[test]
fn a_worker_that_hangs_is_named_and_a_paused_one_is_not() {
    let odd = |worker: usize, id: u64, op: &Op| {
        (worker == 1 && id > 5 && matches!(op, Op::Read(_) | Op::Ping)).then(String::new)
    };
    let cfg = Settings {
        duration: 20_000_000_000,
        rate: 20.0,
        ..settings(2)
    };
    let ran = run(cfg, vec![], odd, |_, _| {});
    let failure = ran.ending.failure.unwrap();
    assert!(
        failure.starts_with("worker:1 did not answer request"),
        "{failure}"
    );
}

#[test]
fn the_calm_part_lasts_until_a_service_that_grants_nothing_is_overdue() {
    for grants in [true, false] {
        let refuse = move |_: usize, id: u64, op: &Op| {
            let refused = matches!(op, Op::Acquire(_)) && !grants;
            refused.then(|| {
                let mut bytes = Vec::new();
                let answer = Answer::Fail("no leader".into());
                Reply { id, answer }.write_line(&mut bytes);
                String::from_utf8(bytes).unwrap()
            })
        };
        let cfg = Settings {
            calm: 100_000_000,
            recovery: 500_000_000,
            ..settings(1)
        };
        let ran = run(cfg, vec![], refuse, |_, _| {});
        let at = |phase: &str| {
            let found = |l: &&serde_json::Value| l["value"]["phase"] == *phase;
            ran.lines.iter().find(found).unwrap()["time"]
                .as_i64()
                .unwrap()
        };
        let calm = at("drain") - at("healed");
        assert_eq!(calm > 500_000_000, !grants, "grants {grants}: {calm} ns");
    }
}

fn with_story(again: bool) -> Settings {
    let story = Story {
        lock: "S".into(),
        rivals: 1,
        work: Span::Fixed(Duration::from_millis(1)),
        wait: Duration::ZERO,
        pause: Span::Fixed(Duration::from_millis(5)),
        again,
    };
    Settings {
        story: Some(story),
        ..settings(2)
    }
}

#[test]
fn a_story_may_release_everything_once_more() {
    for again in [false, true] {
        let ran = run(with_story(again), vec![], |_, _, _| None, |_, _| {});
        assert_eq!(ran.ending.failure, None);
        let invoked = |f: &str| {
            let of_story =
                |l: &&serde_json::Value| l["type"] == "invoke" && l["key"] == "S" && l["f"] == *f;
            ran.lines.iter().filter(of_story).count()
        };
        let (acquired, released) = (invoked("acquire"), invoked("release"));
        assert!(acquired >= 4, "a cycle takes some 10 of 300 ms: {acquired}");
        // The last of each of the two may still be to come.
        let more = if again { acquired } else { 0 };
        let expected = acquired + more;
        assert!(
            (expected.saturating_sub(4)..=expected).contains(&released),
            "{again}: {released} for {acquired}"
        );
        assert!(!again || released > acquired, "{released} for {acquired}");
    }
}

#[test]
fn a_point_waits_for_its_fault_and_then_goes_on() {
    let plan: Plan = serde_json::from_value(serde_json::json!({
        "fault": "pause", "target": "trigger",
        "on": {"event": "point", "point": BEFORE_STORE_WRITE, "worker": 0, "lock": "S"},
        "until": "another-write",
    }))
    .unwrap();
    let cfg = with_story(false);
    let act = |core: &CoreHandle, action: Action| {
        let (id, action, status) = match &action {
            Action::Install { order } => (order.id.clone(), "install", "installed"),
            Action::Heal { id, .. } => (id.clone(), "heal", "healed"),
            Action::Go { .. } => unreachable!("the core sends go by itself"),
        };
        for status in ["started", status] {
            let report = fencepost_nemesis::Report {
                id: id.clone(),
                fault: "pause".into(),
                kind: fencepost_nemesis::Kind::Pause,
                action,
                targets: vec![],
                affects: vec![fencepost_nemesis::ProcId::Worker(0)],
                may_end: false,
                status,
                reason: None,
                receipt: Default::default(),
            };
            core.tell(Command::Report {
                report: Box::new(report),
                holds: true,
                recorded: None,
            });
        }
    };
    let ran = run(cfg, vec![plan], |_, _, _| None, act);
    assert_eq!(ran.ending.failure, None);
    let at = |pred: &dyn Fn(&serde_json::Value) -> bool| ran.lines.iter().position(pred).unwrap();
    let reached = at(&|l| l["f"] == "point" && l["value"]["state"] == "reached");
    let held = at(&|l| l["f"] == "fault" && l["value"]["status"] == "installed");
    let go = at(&|l| l["f"] == "point" && l["value"]["state"] == "go");
    let healed = at(&|l| l["f"] == "fault" && l["value"]["status"] == "healed");
    assert!(
        reached < held && held < go && go < healed,
        "{reached} {held} {go} {healed}"
    );
    assert!(ran.schedule >= 4, "plans, install, go, heal");
}
