//! Times, counts and outcomes in plain words.

use crate::load::Run;
use crate::load::verdict::Verdicts;
use fencepost_checker::verdict::Verdict;

/// Nanoseconds as seconds, to the millisecond: `4.207 s`.
pub fn seconds(ns: i64) -> String {
    format!("{:.3} s", ns as f64 / 1e9)
}

/// A length of time with a unit that fits it: `40 ms`, `2.35 s`.
pub fn span(ns: i64) -> String {
    match ns {
        ..1_000_000 => format!("{} µs", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// Milliseconds with about three digits: `0.52 ms`.
pub fn ms(value: f64) -> String {
    match value {
        v if v < 1.0 => format!("{v:.2} ms"),
        v if v < 100.0 => format!("{v:.1} ms"),
        v => format!("{} ms", count(v.round() as u64)),
    }
}

/// A rate with about three digits.
pub fn rate(value: f64) -> String {
    if value < 100.0 && value.fract() != 0.0 {
        format!("{value:.1}")
    } else {
        count(value.round() as u64)
    }
}

/// With thousands apart: `12,345`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `text`, cut after `most` characters with a mark that says so.
pub fn clip(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text.to_string(),
    }
}

/// Targets as a reader says them: `worker 0, node 2`.
pub fn targets(names: &[String]) -> String {
    names
        .join(", ")
        .replace("worker:", "worker ")
        .replace("node:", "node ")
}

/// `1 check`, `2 checks`.
pub fn of(n: usize, thing: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {thing}{s}")
}

/// How good an outcome is, for its mark and colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Good,
    Bad,
    Unsure,
}

impl Tone {
    pub fn class(self) -> &'static str {
        match self {
            Tone::Good => "good",
            Tone::Bad => "bad",
            Tone::Unsure => "unsure",
        }
    }

    pub fn mark(self) -> &'static str {
        match self {
            Tone::Good => "✓",
            Tone::Bad => "✗",
            Tone::Unsure => "?",
        }
    }
}

/// The outcome in a few words, and how good it is.
pub fn outcome(run: &Run) -> (String, Tone) {
    let Some(verdicts) = &run.verdicts else {
        return ("Not judged yet".into(), Tone::Unsure);
    };
    let known = [
        ("as-expected", "As expected", Tone::Good),
        ("violated", "Violated unexpectedly", Tone::Bad),
        ("malformed", "The history is malformed", Tone::Bad),
        ("harness-failure", "The harness failed", Tone::Bad),
        ("interrupted", "Interrupted", Tone::Unsure),
        (
            "fault-not-applied",
            "A fault did not take hold",
            Tone::Unsure,
        ),
        ("not-seen", "An expected violation was not seen", Tone::Bad),
        ("unknown", "Nothing can be said", Tone::Unsure),
    ];
    match known.iter().find(|(name, ..)| *name == verdicts.outcome) {
        Some((_, text, tone)) => ((*text).into(), *tone),
        None => (verdicts.outcome.replace('-', " "), Tone::Unsure),
    }
}

/// What was found, in one or two sentences.
pub fn finding(run: &Run) -> String {
    let Some(verdicts) = &run.verdicts else {
        return "No verdict.json was found: judge this folder with `fencepost check`.".into();
    };
    let mut sentences = Vec::new();
    if let Some(failure) = run.meta.text("failure") {
        sentences.push(format!("The run failed: {failure}."));
    }
    if verdicts.outcome != "as-expected" && !verdicts.reason.is_empty() {
        sentences.push(format!("Decisive: {}.", verdicts.reason));
    }
    sentences.push(tally(verdicts));
    sentences.join(" ")
}

fn tally(verdicts: &Verdicts) -> String {
    let names = |wanted: &dyn Fn(&crate::load::verdict::Check) -> bool| -> Vec<&str> {
        let found = verdicts.checks.iter().filter(|c| wanted(c));
        found.map(|c| c.name.as_str()).collect()
    };
    let violated = |c: &crate::load::verdict::Check| c.result.verdict == Verdict::Violated;
    let bad = names(&|c| violated(c) && !c.as_expected());
    let shown = names(&|c| violated(c) && c.as_expected());
    let unmet = names(&|c| !violated(c) && !c.as_expected());
    let held = names(&|c| c.result.verdict == Verdict::Holds && c.as_expected());
    let unknown = names(&|c| c.result.verdict == Verdict::Unknown && c.as_expected());
    let mut parts = Vec::new();
    if !bad.is_empty() {
        parts.push(format!("Violated, and should not be: {}.", list(&bad)));
    }
    if !unmet.is_empty() {
        parts.push(format!("Not what the scenario demands: {}.", list(&unmet)));
    }
    if !shown.is_empty() {
        let verb = if shown.len() == 1 { "was" } else { "were" };
        parts.push(format!(
            "{} {verb} violated, as the scenario expects or allows.",
            list(&shown)
        ));
    }
    if !held.is_empty() {
        let verb = if held.len() == 1 { "holds" } else { "hold" };
        parts.push(format!("{} {verb}.", of(held.len(), "check")));
    }
    if !unknown.is_empty() {
        let verb = if unknown.len() == 1 { "is" } else { "are" };
        parts.push(format!("{} {verb} unknown.", of(unknown.len(), "check")));
    }
    if parts.is_empty() {
        parts.push("No check gave an answer.".into());
    }
    parts.join(" ")
}

/// `a`, `a and b`, `a, b and c`.
pub fn list(items: &[&str]) -> String {
    match items {
        [] => String::new(),
        [one] => (*one).to_string(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(span(40_000_000), "40 ms");
        assert_eq!(ms(0.5), "0.50 ms");
        assert_eq!(list(&["a", "b", "c"]), "a, b and c");
    }
}
