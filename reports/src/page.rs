//! The page around the panels: `report.html`, one self-contained file.

use askama::Template;

use crate::ReportError;
use crate::load::Run;
use crate::panels;
use crate::words::{count, finding, outcome, span};

pub const CSS: &str = include_str!("../assets/report.css");
const JS: &str = include_str!("../assets/report.js");

#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    css: &'static str,
    js: &'static str,
    name: &'a str,
    subject: String,
    outcome: String,
    class: &'static str,
    mark: &'static str,
    finding: String,
    facts: Vec<(&'static str, String)>,
    notes: &'a [String],
    sections: Vec<Section>,
}

struct Section {
    id: &'static str,
    title: &'static str,
    body: String,
}

/// The report as HTML.
pub fn page(run: &Run) -> Result<String, ReportError> {
    let mut sections = Vec::new();
    for panel in panels::ALL {
        if let Some(body) = (panel.body)(run)? {
            sections.push(Section {
                id: panel.id,
                title: panel.title,
                body,
            });
        }
    }
    let (outcome, tone) = outcome(run);
    let page = Page {
        css: CSS,
        js: JS,
        name: run.meta.name(),
        subject: subject(run),
        outcome,
        class: tone.class(),
        mark: tone.mark(),
        finding: finding(run),
        facts: facts(run),
        notes: &run.notes,
        sections,
    };
    Ok(page.render()?)
}

/// `on redis 8.0.2, witness store without fence checks, local host`.
pub fn subject(run: &Run) -> String {
    let mut parts = Vec::new();
    parts.extend(run.meta.system().map(|s| format!("on {s}")));
    if let Some(kind) = run.meta.text("store.kind") {
        parts.push(match run.meta.flag("store.fenced") {
            Some(true) => format!("{kind} store that checks fences"),
            Some(false) => format!("{kind} store that checks no fences"),
            None => format!("{kind} store"),
        });
    }
    parts.extend(run.meta.text("host").map(|h| format!("{h} host")));
    parts.join(", ")
}

fn facts(run: &Run) -> Vec<(&'static str, String)> {
    let scan = &run.scan;
    let mut facts = Vec::new();
    let length = scan.last - scan.first.unwrap_or(0);
    facts.push(("length", span(length)));
    facts.push(("events", count(scan.events)));
    let grants = scan
        .latencies
        .series
        .get("acquire")
        .map_or(0, |s| s.total.ok);
    facts.push(("grants", count(grants)));
    let applied = scan.faults.all.iter().filter(|f| f.applied()).count();
    let known = scan.faults.all.len() as u64 + scan.faults.cut;
    facts.push(("faults applied", format!("{applied} of {}", count(known))));
    if let Some(seed) = run.meta.get("seed") {
        facts.push(("seed", seed.to_string()));
    }
    if let Some(code) = run.verdicts.as_ref().and_then(|v| v.exit_code) {
        facts.push(("exit code", code.to_string()));
    }
    facts
}
