//! What a run or a judgement prints.

use std::path::Path;

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{ContentArrangement, LineStyle, Table};
use fencepost_checker::verdict::{CheckResult, Expected, Verdict, VerdictFile};
use serde_json::json;

use crate::run::Report;
use crate::run::core::Figures;

/// One JSON object: verdict, figures and folder.
pub fn json(report: &Report) {
    let object = json!({
        "dir": report.dir, "verdict": report.verdict, "failure": report.failure, "warnings": report.warnings,
        "undemanded": report.undemanded,
        "figures": report.figures.to_json(report.target_rate),
    });
    println!("{object}");
}

/// The story, the table, the rates, and where the report is.
pub fn text(report: &Report) {
    verdict(&report.verdict);
    rates(&report.figures, report.target_rate);
    for why in &report.undemanded {
        println!("{why}");
    }
    for warning in &report.warnings {
        println!("warning: {warning}");
    }
    if let Some(failure) = &report.failure {
        println!("failure: {failure}");
    }
    println!("report:  {}", near(&report.dir.join("report.html")));
    println!("again:   fencepost check {}", near(&report.dir));
}

/// The story of the worst finding, the verdict table and the outcome.
pub fn verdict(file: &VerdictFile) {
    if let Some((name, check)) = worst(file) {
        println!("what happened ({name}):");
        for step in &check.story {
            println!(
                "  {:>9.3} s  #{:<7} {}",
                step.time as f64 / 1e9,
                step.index,
                step.text
            );
        }
        println!();
    }
    println!("{}", table(file));
    for warning in &file.warnings {
        println!("warning: {warning}");
    }
    let outcome = serde_json::to_value(file.outcome).unwrap_or_default();
    println!(
        "outcome: {}: {}",
        outcome.as_str().unwrap_or("?"),
        file.reason
    );
}

/// The violated check with a story that says most: unexpected before expected, and that before tolerated.
fn worst(file: &VerdictFile) -> Option<(&String, &CheckResult)> {
    let told = file
        .checks
        .iter()
        .filter(|(_, c)| c.verdict == Verdict::Violated && !c.story.is_empty());
    let wanted = |c: &CheckResult| match c.expected {
        Expected::Holds | Expected::NotViolated => 2,
        Expected::Violated => 1,
        Expected::Any => 0,
    };
    told.max_by_key(|(name, c)| (wanted(c), rank(name), c.story.len()))
}

/// Stories that show damage before those that show a cause.
fn rank(name: &str) -> u8 {
    match name {
        "stale-fence-accepted" => 3,
        "lost-update" => 2,
        "lease-overrun" => 1,
        _ => 0,
    }
}

fn table(file: &VerdictFile) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()))
        .set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["check", "verdict", "expected", "", "reason"]);
    for (name, c) in &file.checks {
        let met = match (c.expected, c.verdict) {
            (Expected::Any, _) | (Expected::NotViolated, Verdict::Holds | Verdict::Unknown) => "",
            (Expected::Holds, Verdict::Holds) | (Expected::Violated, Verdict::Violated) => "ok",
            _ => "!!",
        };
        table.add_row([
            name.as_str(),
            word(c.verdict),
            expectation(c.expected),
            met,
            c.reason.as_str(),
        ]);
    }
    table
}

fn word(v: Verdict) -> &'static str {
    match v {
        Verdict::Holds => "holds",
        Verdict::Violated => "violated",
        Verdict::Unknown => "unknown",
    }
}

fn expectation(e: Expected) -> &'static str {
    match e {
        Expected::Holds => "holds",
        Expected::Violated => "violated",
        Expected::Any => "any",
        Expected::NotViolated => "",
    }
}

fn rates(figures: &Figures, target: f64) {
    let achieved = figures.achieved();
    if target > 0.0 {
        let short = if achieved < target * 0.99 {
            "  (short of the target)"
        } else {
            ""
        };
        println!(
            "load:    {achieved:.1} of {target:.1} lock cycles/s, {:.0} requests/s{short}",
            figures.requests_per_second()
        );
    }
    for (name, s) in figures.timed() {
        let ms = |q: f64| s.latency.value_at_quantile(q) as f64 / 1e3;
        println!(
            "  {name:<8} {:>8} ok {:>6} fail {:>4} unknown   p50 {:>8.2} ms   p99 {:>8.2} ms   max {:>8.2} ms",
            s.ok,
            s.fail,
            s.info,
            ms(0.5),
            ms(0.99),
            s.latency.max() as f64 / 1e3
        );
    }
}

/// A path relative to where we are, when it is below.
pub fn near(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here)
        .unwrap_or(path)
        .display()
        .to_string()
}
