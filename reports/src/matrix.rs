//! The page of a matrix: services × faults, one cell a run, linked to its report.
//!
//! `matrix.json` is `{"format":1,"rows":[{"system","version","fault","scenario","seed","host",
//! "run","outcome","reason","undemanded","checks":{check: answer},"acquire_p50_ms","acquire_p99_ms",
//! "throughput","outage_ms","recovery_ms","updates":{"acknowledged","lost"}}]}`; `run` is a path relative to
//! its folder, and what a run cannot say is null or absent.

use std::collections::BTreeMap;

use askama::Template;
use serde::Deserialize;

use crate::ReportError;
use crate::page::CSS;
use crate::words::{Tone, ms, rate, span};

/// Outcome of a run that was not made: the service does not offer what the scenario needs.
const UNFIT: &str = "not-applicable";

/// What `fencepost matrix` wrote.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Matrix {
    pub rows: Vec<Row>,
}

/// One run of the matrix.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Row {
    pub system: String,
    pub fault: String,
    pub scenario: String,
    pub seed: Option<u64>,
    /// Run folder, relative to the folder of `matrix.json`.
    pub run: String,
    pub outcome: String,
    /// Why it did not come out as expected.
    pub reason: String,
    /// What was not demanded of the service, and why.
    pub undemanded: Vec<String>,
    pub checks: BTreeMap<String, String>,
    pub acquire_p50_ms: Option<f64>,
    pub acquire_p99_ms: Option<f64>,
    /// Lock cycles a second.
    pub throughput: Option<f64>,
    /// The longest time without a grant that overlaps a fault.
    pub outage_ms: Option<f64>,
    /// From the last healing to the next grant.
    pub recovery_ms: Option<f64>,
}

#[derive(Template)]
#[template(path = "matrix.html")]
struct Page {
    css: &'static str,
    faults: Vec<String>,
    lines: Vec<Line>,
    tally: String,
    details: Vec<Detail>,
}

struct Line {
    system: String,
    cells: Vec<Vec<Cell>>,
}

struct Cell {
    href: String,
    class: &'static str,
    mark: &'static str,
    scenario: String,
    outcome: String,
    said: String,
}

struct Detail {
    system: String,
    fault: String,
    scenario: String,
    href: String,
    class: &'static str,
    outcome: String,
    violated: String,
    held: usize,
    unknown: usize,
    figures: [String; 5],
}

/// The page as HTML; everything from the file escaped.
pub fn page(matrix: &Matrix) -> Result<String, ReportError> {
    let mut faults: Vec<String> = Vec::new();
    let mut systems: Vec<&str> = Vec::new();
    for row in &matrix.rows {
        if !faults.contains(&row.fault) {
            faults.push(row.fault.clone());
        }
        if !systems.contains(&row.system.as_str()) {
            systems.push(&row.system);
        }
    }
    let lines = systems.iter().map(|system| {
        let cell = |fault: &String| {
            let here = matrix
                .rows
                .iter()
                .filter(|r| r.system == *system && r.fault == *fault);
            here.map(cell).collect()
        };
        Line {
            system: (*system).to_string(),
            cells: faults.iter().map(cell).collect(),
        }
    });
    let count = |outcome: &str| matrix.rows.iter().filter(|r| r.outcome == outcome).count();
    let (good, unfit) = (count("as-expected"), count(UNFIT));
    let page = Page {
        css: CSS,
        lines: lines.collect(),
        faults,
        tally: format!(
            "{good} of {} runs came out as their scenarios expect.",
            matrix.rows.len() - unfit
        ),
        details: matrix.rows.iter().map(detail).collect(),
    };
    Ok(page.render()?)
}

fn tone(outcome: &str) -> Tone {
    match outcome {
        "as-expected" => Tone::Good,
        "violated" | "not-seen" | "malformed" | "harness-failure" => Tone::Bad,
        _ => Tone::Unsure,
    }
}

fn violated(row: &Row) -> Vec<&str> {
    let all = row
        .checks
        .iter()
        .filter(|(_, answer)| *answer == "violated");
    all.map(|(name, _)| name.as_str()).collect()
}

/// The scenario, and the seed that tells it from its neighbours.
fn label(row: &Row) -> String {
    match row.seed {
        Some(seed) => format!("{}, seed {seed}", row.scenario),
        None => row.scenario.clone(),
    }
}

fn said(row: &Row) -> String {
    let violated = violated(row);
    match (violated.is_empty(), row.outcome == UNFIT) {
        (_, true) => row.reason.clone(),
        (true, false) => "nothing violated".into(),
        (false, false) => {
            let broke = format!("violated: {}", violated.join(", "));
            std::iter::once(&broke)
                .chain(&row.undemanded)
                .cloned()
                .collect::<Vec<_>>()
                .join("; ")
        }
    }
}

fn cell(row: &Row) -> Cell {
    let tone = tone(&row.outcome);
    Cell {
        href: href(&row.run),
        class: tone.class(),
        mark: tone.mark(),
        scenario: label(row),
        outcome: row.outcome.replace('-', " "),
        said: said(row),
    }
}

fn detail(row: &Row) -> Detail {
    let answers = |wanted: &str| row.checks.values().filter(|a| *a == wanted).count();
    let time = |value: Option<f64>| value.map_or("–".into(), ms);
    let long = |value: Option<f64>| value.map_or("–".into(), |v| span((v * 1e6) as i64));
    Detail {
        system: row.system.clone(),
        fault: row.fault.clone(),
        scenario: label(row),
        href: href(&row.run),
        class: tone(&row.outcome).class(),
        outcome: row.outcome.replace('-', " "),
        violated: violated(row).join(", "),
        held: answers("holds"),
        unknown: answers("unknown"),
        figures: [
            time(row.acquire_p50_ms),
            time(row.acquire_p99_ms),
            row.throughput.map_or("–".into(), rate),
            long(row.outage_ms),
            long(row.recovery_ms),
        ],
    }
}

/// Relative link to a run's report; empty for paths that leave the folder, as
/// for those that could be read as an address.
fn href(run: &str) -> String {
    let inside = run.split('/').all(|part| !part.is_empty() && part != "..");
    if run.is_empty() || !inside {
        return String::new();
    }
    let mut out = String::from("./");
    for byte in run.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_./~".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out + "/report.html"
}

#[cfg(test)]
mod tests {
    use super::href;

    #[test]
    fn links_stay_within_the_folder() {
        assert_eq!(href("runs/a b"), "./runs/a%20b/report.html");
        assert_eq!(
            href("javascript:alert(1)"),
            "./javascript%3Aalert%281%29/report.html"
        );
        for bad in ["", "../x", "/etc", "a//b"] {
            assert_eq!(href(bad), "");
        }
    }
}
