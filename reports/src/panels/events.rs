//! The events that the evidence points at, with those of the same lock around them.

use askama::Template;
use fencepost_history::{Event, EventType, Process, Value};

use super::Panel;
use crate::ReportError;
use crate::load::Run;
use crate::load::events::plain;
use crate::words::{clip, count, seconds};

pub const PANEL: Panel = Panel { id: "events", title: "Events", body };

const MAX_TEXT: usize = 700;

#[derive(Template)]
#[template(
    ext = "html",
    source = r##"
<p class="small">{{ pointed }} events that the checks point at{% if around > 0 %}, and {{ around }} of the same lock around the story{% endif %}; {{ total }} are in <code>history.jsonl</code>.</p>
<div class="wide tall"><table class="events">
<thead><tr><th scope="col" class="num">Index</th><th scope="col">Time</th><th scope="col">Process</th><th scope="col">Type</th><th scope="col">Operation</th><th scope="col">Lock</th><th scope="col">Value</th></tr></thead>
<tbody>
{% for e in rows %}<tr id="e{{ e.index }}"{% if e.pointed %} class="pointed"{% endif %}><td class="num">{% if e.pointed %}<span class="dot" title="evidence">●</span> {% endif %}{{ e.index }}</td><td class="when">{{ e.when }}</td><td>{{ e.process }}</td><td>{{ e.kind }}</td><td>{{ e.f }}</td><td>{{ e.key }}</td><td><code>{{ e.value }}</code>{% if !e.error.is_empty() %} <span class="error">{{ e.error }}</span>{% endif %}</td></tr>
{% endfor %}</tbody></table></div>
"##
)]
struct Body {
    rows: Vec<Row>,
    pointed: usize,
    around: usize,
    total: String,
}

struct Row {
    index: u64,
    pointed: bool,
    when: String,
    process: String,
    kind: &'static str,
    f: String,
    key: String,
    value: String,
    error: String,
}

fn body(run: &Run) -> Result<Option<String>, ReportError> {
    let pointed = run.scan.shown.values().map(|e| row(e, true));
    let around = run.context.values().map(|e| row(e, false));
    let mut rows: Vec<Row> = pointed.chain(around).collect();
    if rows.is_empty() {
        return Ok(None);
    }
    rows.sort_by_key(|r| r.index);
    let body = Body {
        rows,
        pointed: run.scan.shown.len(),
        around: run.context.len(),
        total: count(run.scan.events),
    };
    Ok(Some(body.render()?))
}

fn row(event: &Event, pointed: bool) -> Row {
    let value = match &event.value {
        Value::Null => String::new(),
        value => plain(value),
    };
    Row {
        index: event.index,
        pointed,
        when: seconds(event.time),
        process: match &event.process {
            Process::Client(id) => id.to_string(),
            Process::Named(name) => clip(name, 80),
        },
        kind: match event.kind {
            EventType::Invoke => "invoke",
            EventType::Ok => "ok",
            EventType::Fail => "fail",
            EventType::Info => "info",
        },
        f: event.f.to_string(),
        key: clip(event.key.as_deref().unwrap_or(""), 80),
        value: clip(&value, MAX_TEXT),
        error: clip(event.error.as_deref().unwrap_or(""), MAX_TEXT),
    }
}
