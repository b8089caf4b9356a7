//! From the checks' answers and what the scenario expects to one outcome (docs/outcomes.md).

use std::collections::BTreeMap;

use super::facts::{Facts, Status};
use crate::verdict::{CheckResult, Expected, Outcome, Verdict};

const OVERALL: &str = "double-holder";

/// What else decides: how the recording and the faults went.
#[derive(Default)]
pub struct Circumstances {
    /// Why the history could not be judged to its end.
    pub malformed: Option<String>,
    /// The first fault that did not take hold.
    pub not_applied: Option<String>,
}

/// What is expected of one entry. The classes of `double-holder` and the whole are one finding: whichever
/// is named is compared.
pub fn expected(facts: &Facts, name: &str) -> Expected {
    let whole = facts.expect.get(OVERALL);
    match facts.expect.get(name) {
        Some(expected) => *expected,
        None if name == OVERALL && class_named(facts) => Expected::Any,
        None if is_class(name) && !class_named(facts) => whole.copied().unwrap_or_default(),
        None => Expected::default(),
    }
}

fn is_class(name: &str) -> bool {
    name.starts_with("double-holder.")
}

fn class_named(facts: &Facts) -> bool {
    facts.expect.keys().any(|k| is_class(k))
}

/// Notes in each result what was expected of it.
pub fn expect(facts: &Facts, checks: &mut BTreeMap<String, CheckResult>) {
    for (name, expected) in &facts.expect {
        let result = checks
            .entry(name.clone())
            .or_insert_with(|| crate::checks::unknown("there is no such check"));
        result.expected = *expected;
    }
    for (name, result) in checks.iter_mut() {
        if facts.expect.contains_key(name) {
            continue;
        }
        // The classes and the whole are one finding: whichever is named is compared.
        let whole_named = facts.expect.contains_key(OVERALL) && !class_named(facts);
        if (name == OVERALL && class_named(facts)) || (is_class(name) && whole_named) {
            result.expected = Expected::Any;
        }
    }
}

/// The outcome and what decided it, by the documented precedence.
pub fn decide(
    facts: &Facts,
    checks: &BTreeMap<String, CheckResult>,
    around: &Circumstances,
) -> (Outcome, String) {
    let find = |verdict: Verdict, expected: &[Expected]| {
        checks
            .iter()
            .find(|(_, c)| c.verdict == verdict && expected.contains(&c.expected))
            .map(|(name, c)| format!("{name}: {}", c.reason))
    };
    if let Some(why) = find(Verdict::Violated, &[Expected::Holds, Expected::NotViolated]) {
        return (Outcome::Violated, why);
    }
    if let Some(what) = &around.malformed {
        return (Outcome::Malformed, what.clone());
    }
    if let Some(early) = ended_early(facts) {
        return early;
    }
    if let Some(fault) = &around.not_applied {
        return (Outcome::FaultNotApplied, fault.clone());
    }
    if let Some(why) = find(Verdict::Holds, &[Expected::Violated]) {
        return (Outcome::NotSeen, why);
    }
    let vacuous = find(Verdict::Unknown, &[Expected::Holds, Expected::Violated]).or_else(|| {
        let c = checks.get("coverage")?;
        (c.verdict == Verdict::Unknown && c.expected != Expected::Any)
            .then(|| format!("coverage: {}", c.reason))
    });
    match vacuous {
        Some(why) => (Outcome::Unknown, why),
        None => (
            Outcome::AsExpected,
            "every check came out as expected".into(),
        ),
    }
}

fn ended_early(facts: &Facts) -> Option<(Outcome, String)> {
    let failure = facts.failure.clone();
    match facts.status {
        Status::Interrupted => {
            let why = failure.unwrap_or_else(|| "interrupted by the user".into());
            Some((Outcome::Interrupted, why))
        }
        Status::Running => {
            let why = "run.json still says running: the controller was killed".to_owned();
            Some((Outcome::HarnessFailure, failure.unwrap_or(why)))
        }
        Status::Failed => {
            let why = failure.unwrap_or_else(|| "the harness failed".into());
            Some((Outcome::HarnessFailure, why))
        }
        Status::Complete => failure.map(|why| (Outcome::HarnessFailure, why)),
    }
}
