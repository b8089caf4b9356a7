#![allow(clippy::unwrap_used)]
//! Histories as users bring them: each with a file in `corpus/`, and what it must give.

use fencepost_checker::{CheckError, Engine, Options, Outcome, Report, check_history};
use fencepost_history::read_path;

fn run(file: &str, model: &str) -> Result<Report, CheckError> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(file);
    let history = read_path(&path).unwrap();
    let auto = check_history(&history, model, None, &Options::default());
    let both = Options {
        engine: Engine::Both,
        ..Options::default()
    };
    let again = check_history(&history, model, None, &both);
    match (&auto, &again) {
        (Ok(a), Ok(b)) => assert_eq!(kind(&a.outcome), kind(&b.outcome), "{file}"),
        (Err(a), Err(b)) => assert_eq!(a, b),
        _ => panic!("{file}: {auto:?} but {again:?}"),
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

fn verdict(file: &str, model: &str) -> &'static str {
    kind(&run(file, model).unwrap().outcome)
}

#[test]
fn b01_an_unknown_acquire_explains_a_busy_try() {
    assert_eq!(verdict("b01.jsonl", "owner-mutex"), "linearizable");
}

#[test]
fn b03_busy_inside_anothers_hold() {
    assert_eq!(verdict("b03.jsonl", "owner-mutex"), "linearizable");
}

#[test]
fn b04_never_completed_is_as_info() {
    assert_eq!(
        verdict("b04-open.jsonl", "owner-mutex"),
        verdict("b04-info.jsonl", "owner-mutex")
    );
}

#[test]
fn b08_one_owner_again_and_again() {
    assert_eq!(
        verdict("b08.jsonl", "reentrant-fenced:raise"),
        "linearizable"
    );
    assert_eq!(verdict("b08.jsonl", "fenced-mutex"), "violated");
}

#[test]
fn b09_an_ok_without_an_invocation() {
    assert!(matches!(
        run("b09.jsonl", "owner-mutex"),
        Err(CheckError::Malformed { index: 0, .. })
    ));
}

#[test]
fn b13_nothing_to_check_is_vacuous() {
    for file in ["b13-empty.jsonl", "b13-faults.jsonl", "b13-fails.jsonl"] {
        assert!(run(file, "owner-mutex").unwrap().is_vacuous(), "{file}");
    }
}

#[test]
fn b16_equal_times_without_index_are_concurrent() {
    assert_eq!(verdict("b16-equal-times.jsonl", "register"), "linearizable");
    assert_eq!(verdict("b16-shuffled.jsonl", "register"), "linearizable");
}

#[test]
fn b18_two_grants_no_release() {
    assert_eq!(verdict("b18.jsonl", "owner-mutex"), "violated");
    assert_eq!(verdict("b18.jsonl", "mutex"), "violated");
}

#[test]
fn b19_anothers_release() {
    assert_eq!(verdict("b19.jsonl", "owner-mutex"), "violated");
    assert_eq!(verdict("b19.jsonl", "mutex"), "linearizable");
}

#[test]
fn b21_a_retired_process_calls_again() {
    assert_eq!(
        verdict("b21-new-process.jsonl", "owner-mutex"),
        "linearizable"
    );
    assert!(matches!(
        run("b21-again.jsonl", "owner-mutex"),
        Err(CheckError::Malformed { index: 2, .. })
    ));
}

#[test]
fn b22_completion_of_something_else() {
    assert!(matches!(
        run("b22.jsonl", "owner-mutex"),
        Err(CheckError::Malformed { index: 2, .. })
    ));
}

#[test]
fn b25_one_fence_in_two_grants() {
    let Outcome::Violated(why) = run("b25.jsonl", "fenced-mutex-leased").unwrap().outcome else {
        panic!("one fence was given twice");
    };
    assert_eq!(why.class, "same-fence");
}

#[test]
fn b36_a_model_that_does_not_fit() {
    assert!(matches!(
        run("b36.jsonl", "mutex"),
        Err(CheckError::DoesNotFit { .. })
    ));
}

#[test]
fn first_operation_illegal_is_explained() {
    let Outcome::Violated(why) = run("first-illegal.jsonl", "kv").unwrap().outcome else {
        panic!("nobody put what was read");
    };
    assert_eq!(why.evidence, [0, 1]);
    assert_eq!(why.story.len(), 2);
}
