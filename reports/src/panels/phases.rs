//! The run's phases, and worker processes that ended.

use askama::Template;

use super::Panel;
use crate::ReportError;
use crate::load::Run;
use crate::words::seconds;

pub const PANEL: Panel = Panel {
    id: "phases",
    title: "Phases and workers",
    body,
};

#[derive(Template)]
#[template(
    ext = "html",
    source = r##"
<div class="wide"><table><thead><tr><th scope="col">At</th><th scope="col">What</th></tr></thead><tbody>
{% for (when, what) in rows %}<tr><td class="when">{{ when }}</td><td>{{ what }}</td></tr>
{% endfor %}</tbody></table></div>
"##
)]
struct Body {
    rows: Vec<(String, String)>,
}

fn body(run: &Run) -> Result<Option<String>, ReportError> {
    let phases = run.scan.phases.iter();
    let mut all: Vec<(i64, String)> = phases.map(|(phase, t)| (*t, phase.clone())).collect();
    for (worker, time, reason, expected) in &run.scan.exits {
        let odd = if *expected { "" } else { ", unexpectedly" };
        all.push((*time, format!("{worker} ended{odd}: {reason}")));
    }
    if all.is_empty() {
        return Ok(None);
    }
    all.sort_by_key(|(time, _)| *time);
    let rows = all.into_iter().map(|(time, what)| (seconds(time), what));
    let body = Body { rows: rows.collect() };
    Ok(Some(body.render()?))
}
