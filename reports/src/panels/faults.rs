//! The faults and their receipts: what was done, and what proves that it took hold.

use askama::Template;

use super::Panel;
use crate::ReportError;
use crate::load::Run;
use crate::load::events::plain;
use crate::scan::faults::{Fault, Stage};
use crate::words::{clip, seconds, span, targets};
use fencepost_history::Value;

pub const PANEL: Panel = Panel { id: "faults", title: "Faults and their receipts", body };

const MAX_ROWS: usize = 150;
const MAX_RECEIPT: usize = 400;
const MAX_MEMBERS: usize = 40;

#[derive(Template)]
#[template(
    ext = "html",
    source = r##"
<div class="wide"><table>
<thead><tr><th scope="col">Fault</th><th scope="col">On</th><th scope="col">Installed</th><th scope="col">Healed</th><th scope="col">In force</th></tr></thead>
<tbody>
{% for f in rows %}<tr><th scope="row">{{ f.name }} <span class="small">{{ f.id }}</span></th><td>{{ f.on }}</td>
{%- for s in f.stages %}<td>{% if let Some(s) = s %}<span class="answer {{ s.class }}">{{ s.mark }} {{ s.status }}</span> at {{ s.when }}
{%- if s.linked %} <a class="ev" href="#e{{ s.index }}">event {{ s.index }}</a>{% endif %}
{%- if !s.reason.is_empty() %}<div>{{ s.reason }}</div>{% endif %}
{%- if !s.receipt.is_empty() %}<dl class="receipt">{% for (k, v) in s.receipt %}<dt>{{ k }}</dt><dd>{{ v }}</dd>{% endfor %}</dl>{% endif %}
{%- else %}<span class="answer unsure">? not recorded</span>{% endif %}</td>{% endfor %}
<td>{{ f.length }}</td></tr>
{% endfor %}</tbody></table></div>
{% if more > 0 %}<p class="small">{{ more }} more faults are in history.jsonl.</p>{% endif %}
"##
)]
struct Body {
    rows: Vec<Row>,
    more: u64,
}

struct Row {
    id: String,
    name: String,
    on: String,
    /// Installing and healing.
    stages: [Option<Cell>; 2],
    length: String,
}

struct Cell {
    class: &'static str,
    mark: &'static str,
    status: String,
    when: String,
    index: u64,
    linked: bool,
    reason: String,
    receipt: Vec<(String, String)>,
}

fn body(run: &Run) -> Result<Option<String>, ReportError> {
    let faults = &run.scan.faults;
    if faults.all.is_empty() {
        return Ok(None);
    }
    let rows = faults.all.iter().take(MAX_ROWS).map(|f| row(f, run)).collect();
    let more = faults.all.len().saturating_sub(MAX_ROWS) as u64 + faults.cut;
    Ok(Some(Body { rows, more }.render()?))
}

fn row(fault: &Fault, run: &Run) -> Row {
    let on = if fault.affects.is_empty() || fault.affects == fault.targets {
        targets(&fault.targets)
    } else {
        format!("{} → {}", targets(&fault.targets), targets(&fault.affects))
    };
    let length = match fault.span() {
        None => "never".into(),
        Some((from, Some(to))) => span(to - from),
        Some((_, None)) => "to the end".into(),
    };
    Row {
        id: fault.id.clone(),
        name: fault.name.clone(),
        on,
        stages: [&fault.installed, &fault.healed].map(|s| s.as_ref().map(|s| cell(s, run))),
        length,
    }
}

fn cell(stage: &Stage, run: &Run) -> Cell {
    let (class, mark) = match stage.status.as_str() {
        "installed" | "healed" => ("good", "✓"),
        "skipped" => ("unsure", "–"),
        _ => ("bad", "?"),
    };
    let receipt = match &stage.receipt {
        Value::Map(members) => flat("", members),
        Value::Null => Vec::new(),
        other => vec![("receipt".to_string(), short(other))],
    };
    Cell {
        class,
        mark,
        status: stage.status.clone(),
        when: seconds(stage.time),
        index: stage.index,
        linked: run.shows(stage.index),
        reason: stage.reason.clone().unwrap_or_default(),
        receipt,
    }
}

/// Members of a receipt, those of inner maps with both names: `worker:0 17874`.
fn flat(outer: &str, members: &[(std::sync::Arc<str>, Value)]) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for (name, value) in members.iter().take(MAX_MEMBERS) {
        let name = format!("{outer} {name}").trim_start().to_string();
        match value {
            Value::Map(inner) if outer.is_empty() && !inner.is_empty() => {
                out.extend(flat(&name, inner));
            }
            other => out.push((name, short(other))),
        }
    }
    out
}

fn short(value: &Value) -> String {
    clip(&plain(value), MAX_RECEIPT)
}
