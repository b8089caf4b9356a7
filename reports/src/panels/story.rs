//! What happened: the story's steps beside the timeline of the lock.

use askama::Template;

use super::Panel;
use crate::ReportError;
use crate::load::Run;
use crate::timeline::draw::draw;
use crate::words::{clip, seconds, span};

pub const PANEL: Panel = Panel { id: "story", title: "What happened", body };

#[derive(Template)]
#[template(
    ext = "html",
    source = r##"
<p class="lead">{{ why }} Lock <code>{{ lock }}</code>, {{ from }} to {{ to }} after the run began.</p>
{% if !steps.is_empty() %}<ol class="steps">
{% for step in steps %}<li id="step-{{ step.n }}" data-step="{{ step.n }}"><span class="when">{{ step.when }}</span><span class="what">{{ step.text }}</span>
{%- if step.linked %} <a class="ev" href="#e{{ step.index }}">event {{ step.index }}</a>{% endif %}</li>
{% endfor %}</ol>{% endif %}
{% if drawn %}<figure class="timeline" id="timeline">
<div class="tools" hidden><button type="button" data-zoom="in">Zoom in</button><button type="button" data-zoom="out">Zoom out</button><button type="button" data-zoom="fit">Fit</button><span class="hint">Ctrl + wheel zooms, drag moves</span></div>
<div class="scroll" tabindex="0" role="group" aria-label="Timeline; scrolls sideways">{{ svg|safe }}</div>
<figcaption>
<ul class="legend">
<li><svg viewBox="0 0 34 16" aria-hidden="true"><rect class="certain" x="1" y="2" width="32" height="12"/></svg> holds, within the promised lease</li>
<li><svg viewBox="0 0 34 16" aria-hidden="true"><rect class="over" x="1" y="2" width="32" height="12"/></svg> believes to hold, lease over</li>
<li><svg viewBox="0 0 34 16" aria-hidden="true"><g class="lease" transform="translate(12 4)"><path d="M0-3V11M0-3H7L5-.5 7 2H0"/></g></svg> lease ends</li>
<li><svg viewBox="0 0 34 16" aria-hidden="true"><line class="waiting" x1="1" x2="33" y1="8" y2="8"/></svg> waits for the lock; ending in ×, in vain</li>
<li><svg viewBox="0 0 34 16" aria-hidden="true"><rect class="paused" x="1" y="1" width="32" height="14"/></svg> paused</li>
<li><svg viewBox="0 0 34 16" aria-hidden="true"><line class="in-flight" x1="1" x2="24" y1="8" y2="8"/><circle class="accepted" cx="26" cy="8" r="4.5"/></svg> write, accepted when answered</li>
<li><svg viewBox="0 0 34 16" aria-hidden="true"><circle class="seen" cx="17" cy="8" r="3"/></svg> read</li>
<li><svg viewBox="0 0 34 16" aria-hidden="true"><path class="refused" d="M12 3 22 13M22 3 12 13"/></svg> refused</li>
<li><svg viewBox="0 0 34 16" aria-hidden="true"><path class="stale" d="M17 0 25 8 17 16 9 8Z"/><path class="stale-in" d="M17 4V9M17 11V12.4"/></svg> lower fence accepted after a higher one</li>
<li><svg viewBox="0 0 34 16" aria-hidden="true"><path class="unknown" d="M17 3 22 8 17 13 12 8Z"/></svg> outcome unknown</li>
<li><svg viewBox="0 0 34 16" aria-hidden="true"><path class="mark" d="M13 4H21L17 11Z"/></svg> stopped at a point, or loss noticed</li>
</ul>
<p>A hold is drawn from the answer to its acquire. Its promised end counts from when the request (or the last renewal answered ok) was sent, less a margin of {{ margin }}.
{% if store_log %}The store's row keeps the order of its own log; each operation stands somewhere within its own interval, since the store's clock is not used.{% else %}No store log was found: the store's row shows what clients were answered.{% endif %}
{% for cut in cut %} {{ cut }}{% endfor %}</p>
</figcaption>
</figure>{% endif %}
"##
)]
struct Body {
    why: String,
    lock: String,
    from: String,
    to: String,
    steps: Vec<StepRow>,
    drawn: bool,
    svg: String,
    margin: String,
    store_log: bool,
    cut: Vec<String>,
}

struct StepRow {
    n: usize,
    index: u64,
    when: String,
    text: String,
    linked: bool,
}

fn body(run: &Run) -> Result<Option<String>, ReportError> {
    let Some(focus) = &run.focus else {
        return Ok(None);
    };
    let linked = |index| run.shows(index);
    let drawing = draw(&run.timeline, focus, &run.scan.faults.all, &linked);
    let ttl = run.meta.number("lease.ttl_ms").map_or(0, |ms| (ms * 1e6) as i64);
    let body = Body {
        why: focus.why.clone(),
        lock: clip(focus.key.as_deref().unwrap_or("without a name"), 120),
        from: seconds(focus.from.max(0)),
        to: seconds(focus.to),
        steps: steps(run),
        drawn: !run.timeline.lanes.is_empty(),
        svg: drawing.svg,
        margin: span(run.meta.margin_ns(ttl)),
        store_log: run.timeline.store_log,
        cut: [&run.timeline.cut[..], &drawing.cut[..]].concat(),
    };
    Ok(Some(body.render()?))
}

fn steps(run: &Run) -> Vec<StepRow> {
    let steps = run.tale.iter().flat_map(|tale| &tale.steps);
    let rows = steps.enumerate().map(|(n, step)| StepRow {
        n: n + 1,
        index: step.index,
        when: seconds(step.time),
        text: step.text.clone(),
        linked: run.shows(step.index),
    });
    rows.collect()
}
