//! `summary.md`: the run on one screen, for the job summaries of CI systems.

use askama::Template;

use crate::ReportError;
use crate::load::Run;
use crate::load::verdict::{Check, expected_word, word};
use crate::page::subject;
use crate::words::{clip, count, finding, ms, outcome, rate, seconds, targets};

const MAX_NOTES: usize = 12;
const MAX_INDEXES: usize = 8;

#[derive(Template)]
#[template(
    ext = "txt",
    source = "\
## {{ mark }} {{ name }}: {{ outcome }}

{{ subject }}

{{ finding }}
{% if !steps.is_empty() %}
### What happened ({{ told }})

{% for (when, text) in steps %}{{ loop.index }}. {{ when }}: {{ text }}
{% endfor %}{% endif %}
{%- if !checks.is_empty() %}
### Verdicts

| Check | Answer | Expected | Reason | Evidence (event indexes) |
|---|---|---|---|---|
{% for row in checks %}{{ row }}
{% endfor %}{% endif %}
{%- if !figures.is_empty() %}
### Figures

{% for line in figures %}- {{ line }}
{% endfor %}{% endif %}
{%- if !faults.is_empty() %}
### Faults

{% for line in faults %}- {{ line }}
{% endfor %}{% endif %}
{%- if !notes.is_empty() %}
### About this report

{% for line in notes %}- {{ line }}
{% endfor %}{% endif %}
{%- if !command.is_empty() %}
### Do it again

    {{ command }}
{% endif %}"
)]
struct Summary {
    mark: &'static str,
    name: String,
    outcome: String,
    subject: String,
    finding: String,
    told: String,
    steps: Vec<(String, String)>,
    checks: Vec<String>,
    figures: Vec<String>,
    faults: Vec<String>,
    notes: Vec<String>,
    command: String,
}

/// The summary as Markdown; nothing from the run can become markup.
pub fn summary(run: &Run) -> Result<String, ReportError> {
    let (outcome, tone) = outcome(run);
    let steps = run.tale.iter().flat_map(|tale| &tale.steps);
    let steps = steps.map(|s| (seconds(s.time), md(&clip(&s.text, 300))));
    let checks = run.verdicts.iter().flat_map(|v| &v.checks).map(row);
    let text = Summary {
        mark: tone.mark(),
        name: md(run.meta.name()),
        outcome,
        subject: md(&subject(run)),
        finding: md(&finding(run)),
        told: run
            .tale
            .as_ref()
            .map_or(String::new(), |tale| md(&tale.checks.join(", "))),
        steps: steps.collect(),
        checks: checks.collect(),
        figures: figures(run),
        faults: faults(run),
        notes: run.notes.iter().take(MAX_NOTES).map(|n| md(n)).collect(),
        command: run.meta.command().unwrap_or_default().replace('\n', " "),
    };
    Ok(text.render()?)
}

fn row(check: &Check) -> String {
    let r = &check.result;
    let mut evidence: Vec<String> = r
        .evidence
        .iter()
        .take(MAX_INDEXES)
        .map(u64::to_string)
        .collect();
    if r.evidence.len() > MAX_INDEXES {
        evidence.push(format!("and {} more", r.evidence.len() - MAX_INDEXES));
    }
    let answer = word(r.verdict);
    let answer = if check.as_expected() {
        answer.to_string()
    } else {
        format!("**{answer}**")
    };
    format!(
        "| {} | {answer} | {} | {} | {} |",
        md(&check.name),
        expected_word(r.expected),
        md(&clip(&r.reason, 300)),
        evidence.join(", ")
    )
}

fn figures(run: &Run) -> Vec<String> {
    let figures = &run.figures;
    let mut lines = Vec::new();
    if figures.achieved_rate > 0.0 {
        let target = figures
            .target_rate
            .map_or(String::new(), |t| format!(" of {} wanted", rate(t)));
        lines.push(format!(
            "{} lock cycles/s{target}; {} requests/s over {:.1} s",
            rate(figures.achieved_rate),
            rate(figures.requests_per_s),
            figures.load_s
        ));
    }
    lines.extend(figures.shortfall());
    for (f, op) in figures.ordered() {
        if let (Some(p50), Some(p99)) = (op.p50_ms, op.p99_ms) {
            let unknown = if op.unknown > 0 {
                format!(", {} unknown", count(op.unknown))
            } else {
                String::new()
            };
            let failed = if op.failed > 0 {
                format!(", {} failed", count(op.failed))
            } else {
                String::new()
            };
            let (p50, p99) = (ms(p50), ms(p99));
            lines.push(format!(
                "{}: {} ok{failed}{unknown}, p50 {p50}, p99 {p99}",
                md(f),
                count(op.ok)
            ));
        }
    }
    lines
}

fn faults(run: &Run) -> Vec<String> {
    let faults = &run.scan.faults;
    let mut lines: Vec<String> = faults
        .all
        .iter()
        .take(MAX_NOTES)
        .map(|f| {
            let status = f
                .installed
                .as_ref()
                .map_or("no receipt", |s| s.status.as_str());
            let healed = f
                .healed
                .as_ref()
                .map_or("not healed", |s| s.status.as_str());
            let reason = f.installed.as_ref().and_then(|s| s.reason.as_deref());
            let reason = reason.map_or(String::new(), |r| format!(" ({r})"));
            md(&format!(
                "{} of {}: {status}{reason}, {healed}",
                f.name,
                targets(&f.targets)
            ))
        })
        .collect();
    let more = faults.all.len().saturating_sub(MAX_NOTES) as u64 + faults.cut;
    if more > 0 {
        lines.push(format!("and {} more", count(more)));
    }
    lines
}

/// `text` on one line, with everything escaped that Markdown or HTML would act on.
pub fn md(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '|' | '`' | '*' | '_' | '[' | ']' | '\\' | '#' | '~' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::md;

    #[test]
    fn markup_is_disarmed() {
        assert_eq!(
            md("a|b\n<img> [x](y) `z`"),
            r"a\|b &lt;img&gt; \[x\](y) \`z\`"
        );
    }
}
