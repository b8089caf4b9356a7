//! The repo's own corpus (checker/corpus/README.md): histories that users bring, and what is wanted.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fencepost_checker::judge::judge;
use fencepost_checker::verdict::Outcome as RunOutcome;
use fencepost_checker::{
    CheckError, Engine, Options, Outcome, Report, check_history, check_records,
};
use fencepost_history::pairs::pairs;
use fencepost_history::{History, ReadError, Reader, Value, read_path};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(format!("{name}.jsonl"))
}

fn read(name: &str) -> History {
    read_path(&path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn check(name: &str, model: &str) -> Result<Report, CheckError> {
    let initial = (model == "register").then_some(Value::Int(0));
    let options = Options {
        max_states: Some(1_000_000),
        ..Options::default()
    };
    let auto = check_history(&read(name), model, initial.as_ref(), &options);
    let both = Options {
        engine: Engine::Both,
        ..options
    };
    let again = check_history(&read(name), model, initial.as_ref(), &both);
    match (&auto, &again) {
        (Ok(a), Ok(b)) => assert_eq!(kind(&a.outcome), kind(&b.outcome), "{name}"),
        _ => assert_eq!(auto.as_ref().err(), again.as_ref().err(), "{name}"),
    }
    auto
}

fn kind(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Linearizable => "linearizable",
        Outcome::Violated(_) => "violated",
        Outcome::Unknown(_) => "unknown",
    }
}

#[track_caller]
fn linearizable(name: &str, model: &str) {
    let report = check(name, model).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(report.outcome, Outcome::Linearizable, "{name} as {model}");
}

/// Asserts a violation; returns its words.
#[track_caller]
fn violated(name: &str, model: &str) -> String {
    match check(name, model).unwrap().outcome {
        Outcome::Violated(why) => {
            assert!(!why.evidence.is_empty(), "{name}");
            why.summary
        }
        other => panic!("{name} as {model}: {other:?}"),
    }
}

#[track_caller]
fn malformed(name: &str, line: u64) {
    let e = match read_path(&path(name)) {
        Ok(h) => pairs(&h).unwrap_err(),
        Err(e) => e,
    };
    assert!(matches!(e, ReadError::Malformed { .. }), "{name}: {e}");
    assert_eq!(e.line(), Some(line), "{name}: {e}");
}

#[test]
fn b01_b03_unknown_and_failed_tries() {
    for model in ["mutex", "owner-mutex", "fenced-mutex"] {
        linearizable("b01-info-then-held", model);
        linearizable("b03-fail-inside-a-hold", model);
    }
}

#[test]
fn b04_never_returned_is_info() {
    let outcomes: Vec<Outcome> = ["no-completion", "null-completion", "as-info"]
        .iter()
        .map(|n| check(&format!("b04-{n}"), "fenced-mutex").unwrap().outcome)
        .collect();
    assert!(
        outcomes.iter().all(|o| *o == Outcome::Linearizable),
        "{outcomes:?}"
    );
}

#[test]
fn b05_unknown_acquires_at_the_tail() {
    let started = Instant::now();
    for n in [10, 50, 500] {
        for model in [
            "mutex",
            "owner-mutex",
            "fenced-mutex",
            "fenced-mutex-leased",
        ] {
            linearizable(&format!("b05-{n}-infos-at-the-tail"), model);
        }
    }
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

#[test]
fn b07_a_stopped_search_says_how_far_it_got() {
    let options = Options {
        engine: Engine::Search,
        max_states: Some(1),
        ..Options::default()
    };
    let h = read("b08-one-owner-many-times");
    let report = check_history(&h, "reentrant-fenced:raise", None, &options).unwrap();
    let Outcome::Unknown(spent) = report.outcome else {
        panic!("{:?}", report.outcome)
    };
    assert!(
        spent.reason.contains("states") && spent.prefix.is_some(),
        "{spent:?}"
    );
}

#[test]
fn b08_one_owner_many_times() {
    linearizable("b08-one-owner-many-times", "reentrant-fenced:raise");
    linearizable("b08-one-owner-many-times", "reentrant:60");
    violated("b08-one-owner-many-times", "reentrant:59");
    violated("b08-one-owner-many-times", "fenced-mutex");
}

#[test]
fn b09_b21_b22_malformed_by_line() {
    malformed("b09-lone-ok", 5);
    malformed("b21-invokes-after-info", 3);
    malformed("b21-two-open", 2);
    malformed("b22-other-f", 2);
}

/// Streamed, as the command reads it, the line is named too.
#[test]
fn b09_the_line_is_named_while_streaming() {
    for (name, line) in [("b09-lone-ok", 5), ("b22-other-f", 2), ("b21-two-open", 2)] {
        let records = Reader::open(&path(name)).unwrap().map(Result::unwrap);
        let e = check_records(records, "fenced-mutex", None, &Options::default()).unwrap_err();
        assert!(
            e.to_string().starts_with(&format!("line {line} ")),
            "{name}: {e}"
        );
        let e = check_history(&read(name), "fenced-mutex", None, &Options::default());
        let e = e.unwrap_err().to_string();
        assert!(e.starts_with(&format!("line {line} ")), "{name}: {e}");
    }
}

#[test]
fn b11_b16_order() {
    for name in ["b11-no-index", "b11-null-index"] {
        linearizable(name, "fenced-mutex");
        let indexes: Vec<u64> = read(name).events.iter().map(|e| e.index).collect();
        assert_eq!(indexes, [0, 1, 2, 3]);
    }
    linearizable("b16-out-of-order", "fenced-mutex");
    linearizable("b16-same-stamp", "register");
}

#[test]
fn b13_nothing_to_say_is_never_a_pass() {
    for (name, faults) in [
        ("b13-empty", 0),
        ("b13-faults-only", 1),
        ("b13-all-fail", 0),
        ("b13-ok-only-before-the-fault", 1),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let run = format!(
            r#"{{"format":1,"system":{{"lease":true,"fence":true}},"lease":{{"ttl_ms":1000}},"faults_planned":{faults},"status":"complete"}}"#
        );
        fs::write(dir.path().join("run.json"), run).unwrap();
        fs::copy(path(name), dir.path().join("history.jsonl")).unwrap();
        let v = judge(dir.path()).unwrap();
        assert_eq!(v.outcome, RunOutcome::Unknown, "{name}: {}", v.reason);
    }
}

/// The lock may have been held from before: a busy is evidence only beside something that happened.
#[test]
fn b13_all_fail_says_nothing_to_a_model() {
    for model in [
        "mutex",
        "owner-mutex",
        "fenced-mutex",
        "shared",
        "reentrant",
    ] {
        for name in ["b13-all-fail", "b13-empty", "b13-faults-only"] {
            let report = check(name, model).unwrap();
            assert!(report.is_vacuous(), "{name} as {model}: {report:?}");
            assert!(!report.notes.is_empty(), "{name} as {model}");
        }
    }
}

#[test]
fn b18_b19_b25_violations() {
    for model in ["mutex", "owner-mutex", "fenced-mutex"] {
        violated("b18-two-oks-no-release", model);
    }
    violated("b19-released-by-another", "owner-mutex");
    linearizable("b19-released-by-another", "mutex");
    let why = violated("b25-one-fence-twice", "fenced-mutex");
    assert!(why.contains("fence 1"), "{why}");
}

#[test]
fn b21_b22_b27_accepted() {
    linearizable("b21-new-process-after-info", "fenced-mutex");
    linearizable("b22-nemesis-between", "fenced-mutex");
    linearizable("b27-ok-with-error", "fenced-mutex");
    let h = read("b27-ok-with-error");
    assert_eq!(h.events[1].error.as_deref(), Some("retried once"));
    assert!(h.events[1].value.get("fence").is_some());
}

#[test]
fn b36_a_model_that_does_not_fit_is_refused() {
    let e = check("b36-no-lock-in-it", "mutex").unwrap_err();
    assert!(matches!(e, CheckError::DoesNotFit { .. }), "{e}");
}

#[test]
fn b37_keys_with_many_infos_do_not_stop_the_rest() {
    violated("b37-keys-with-many-infos", "fenced-mutex");
}

#[test]
fn the_first_operation_is_illegal_and_explained() {
    let Outcome::Violated(why) = check("first-illegal", "kv").unwrap().outcome else {
        panic!("nobody put what was read");
    };
    assert_eq!(why.evidence, [0, 1]);
    assert_eq!(why.story.len(), 2);
}

#[test]
fn the_readme_names_every_file() {
    let readme = fs::read_to_string(path("x").with_file_name("README.md")).unwrap();
    for f in fs::read_dir(path("x").parent().unwrap()).unwrap() {
        let name = f.unwrap().file_name().into_string().unwrap();
        let Some(stem) = name.strip_suffix(".jsonl") else {
            continue;
        };
        let row = stem.split('-').next().unwrap();
        assert!(readme.contains(row), "{name}");
    }
}
