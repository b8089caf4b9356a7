//! `junit.xml`: one test case a check, as CI systems read it.

use quick_junit::{NonSuccessKind, Property, Report, TestCase, TestCaseStatus, TestSuite};

use crate::ReportError;
use crate::load::Run;
use crate::load::verdict::{Check, expected_word, word};
use crate::words::seconds;
use fencepost_checker::verdict::Verdict;

/// The report as XML. A check fails when its answer is not one that the
/// scenario allows; `unknown` that is allowed is skipped, with its reason. A run
/// that failed, or that nobody judged, is an error of its own.
pub fn junit(run: &Run) -> Result<String, ReportError> {
    let mut report = Report::new("fencepost");
    let mut suite = TestSuite::new(run.meta.name());
    let length = run.scan.last.saturating_sub(run.scan.first.unwrap_or(0));
    suite.set_time(std::time::Duration::from_nanos(
        u64::try_from(length).unwrap_or(0),
    ));
    for path in [
        "system.name",
        "system.version",
        "host",
        "store.kind",
        "seed",
        "run_id",
        "fencepost",
    ] {
        if let Some(value) = run.meta.get(path) {
            let value = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_string);
            suite.add_property(Property::new(path, value));
        }
    }
    if let Some(command) = run.meta.command() {
        suite.add_property(Property::new("command", command));
    }
    let class = format!("fencepost.{}", run.meta.name());
    match &run.verdicts {
        Some(verdicts) => {
            for check in &verdicts.checks {
                suite.add_test_case(case(check, &class));
            }
        }
        None => {
            suite.add_test_case(error(
                "verdict",
                &class,
                "no verdict.json: judge the folder with `fencepost check`",
            ));
        }
    }
    if let Some(failure) = run.meta.text("failure") {
        suite.add_test_case(error("run", &class, failure));
    }
    report.add_test_suite(suite);
    report.to_string().map_err(|e| ReportError::Layout {
        what: "junit.xml",
        reason: e.to_string(),
    })
}

fn error(name: &str, class: &str, message: &str) -> TestCase {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
    status.set_message(message);
    let mut case = TestCase::new(name, status);
    case.set_classname(class);
    case
}

fn case(check: &Check, class: &str) -> TestCase {
    let r = &check.result;
    let status = if !check.as_expected() {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        let found = word(r.verdict);
        status.set_message(format!(
            "{found}, expected {}: {}",
            expected_word(r.expected),
            r.reason
        ));
        status.set_type(found);
        status.set_description(told(check));
        status
    } else if r.verdict == Verdict::Unknown {
        let mut status = TestCaseStatus::skipped();
        status.set_message(format!("unknown: {}", r.reason));
        status
    } else {
        TestCaseStatus::success()
    };
    let mut case = TestCase::new(&*check.name, status);
    case.set_classname(class);
    if check.as_expected() && r.verdict == Verdict::Violated {
        case.set_system_out(format!("violated, as the scenario allows\n{}", told(check)));
    }
    case
}

/// Reason, story and evidence as lines of text.
fn told(check: &Check) -> String {
    const MAX: usize = 24;
    let r = &check.result;
    let mut lines = vec![r.reason.clone()];
    for step in r.story.iter().take(MAX) {
        lines.push(format!(
            "{} (event {}): {}",
            seconds(step.time),
            step.index,
            step.text
        ));
    }
    if !r.evidence.is_empty() {
        let mut indexes: Vec<String> = r.evidence.iter().take(MAX).map(u64::to_string).collect();
        if r.evidence.len() > MAX {
            indexes.push(format!("and {} more", r.evidence.len() - MAX));
        }
        lines.push(format!("evidence: events {}", indexes.join(", ")));
    }
    lines.join("\n")
}
