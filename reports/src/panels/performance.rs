//! Latency per operation and throughput over time, with the faults behind them.

use askama::Template;

use super::Panel;
use crate::ReportError;
use crate::figures::Operation;
use crate::load::Run;
use crate::plot::{self, Frame};
use crate::words::{count, ms, rate, span};

pub const PANEL: Panel = Panel { id: "performance", title: "Latency and throughput", body };

const MAX_ERRORS: usize = 12;

#[derive(Template)]
#[template(
    ext = "html",
    source = r##"
{% if !shortfall.is_empty() %}<p class="warn">{{ shortfall }}</p>{% endif %}
<div class="plots">
{% for p in plots %}<figure role="img" aria-label="{{ p.alt }}"><figcaption><strong>{{ p.title }}</strong> {{ p.note }}</figcaption>{{ p.svg|safe }}</figure>
{% endfor %}</div>
<ul class="legend">
<li><svg viewBox="0 0 34 16" aria-hidden="true"><line class="key-first" x1="1" x2="33" y1="8" y2="8"/><circle class="key-first" cx="17" cy="8" r="3"/></svg> p50; grants, on all locks</li>
<li><svg viewBox="0 0 34 16" aria-hidden="true"><line class="key-second" x1="1" x2="33" y1="8" y2="8"/></svg> p99; acquires sent, on all locks</li>
<li><svg viewBox="0 0 34 16" aria-hidden="true"><line class="key-target" x1="1" x2="33" y1="8" y2="8"/></svg> target, without the acquires of a story</li>
{% if banded %}<li><svg viewBox="0 0 34 16" aria-hidden="true"><rect class="band" x="1" y="1" width="32" height="14"/></svg> a fault in force</li>{% endif %}
</ul>
<div class="wide"><table>
<thead><tr><th scope="col">Operation</th><th scope="col" class="num">Ok</th><th scope="col" class="num">Failed</th><th scope="col" class="num">Unknown</th><th scope="col" class="num">p50</th><th scope="col" class="num">p90</th><th scope="col" class="num">p99</th><th scope="col" class="num">p99.9</th><th scope="col" class="num">Slowest</th></tr></thead>
<tbody>
{% for r in rows %}<tr><th scope="row">{{ r.f }}</th>{% for n in r.cells %}<td class="num">{{ n }}</td>{% endfor %}</tr>
{% endfor %}</tbody></table></div>
{% if !errors.is_empty() %}<details><summary>Errors by number</summary><ul>{% for e in errors %}<li>{{ e }}</li>{% endfor %}</ul></details>{% endif %}
<p class="small">{% if intended %}The table counts latency from the intended start of each call, as the controller measured it, so that a queue in front of the service is not hidden. The plots show calls answered ok, from their invocation.{% else %}Latencies are those of calls answered ok, from their invocation: there is no latency.json with the intended starts.{% endif %} Each point covers {{ bucket }} or more; where it covers fewer than 100 calls, p99 is its slowest.</p>
"##
)]
struct Body {
    shortfall: String,
    plots: Vec<Figure>,
    banded: bool,
    rows: Vec<Row>,
    intended: bool,
    errors: Vec<String>,
    bucket: String,
}

struct Figure {
    title: String,
    note: String,
    alt: String,
    svg: String,
}

struct Row {
    f: String,
    cells: Vec<String>,
}

fn body(run: &Run) -> Result<Option<String>, ReportError> {
    let all = &run.scan.latencies;
    if all.series.is_empty() {
        return Ok(None);
    }
    let spans = run.scan.faults.all.iter().filter_map(|f| f.span());
    let frame = Frame {
        from: run.scan.first.unwrap_or(0),
        to: run.scan.last,
        width: all.width,
        load: run.scan.load_span(),
        bands: spans.map(|(from, to)| (from, to.unwrap_or(run.scan.last))).collect(),
    };
    let figures = &run.figures;
    let mut plots = Vec::new();
    if let Some(acquires) = all.series.get("acquire")
        && let Some(svg) = plot::throughput(&frame, acquires, figures.target_rate)?
    {
        let target = figures.target_rate.map_or(String::new(), |t| format!(", target {}/s", rate(t)));
        let note = format!("{} cycles/s{target}", rate(figures.achieved_rate));
        let alt = format!("Throughput over time: {note}");
        plots.push(Figure { title: "Throughput".into(), note, alt, svg });
    }
    for (f, op) in figures.ordered() {
        let Some(series) = all.series.get(f) else {
            continue;
        };
        if let Some(svg) = plot::latency(&frame, series)? {
            let note = format!("p50 {}, p99 {}", known(op.p50_ms), known(op.p99_ms));
            let alt = format!("Latency of {f} over time, logarithmic: {note}");
            plots.push(Figure { title: f.to_string(), note, alt, svg });
        }
    }
    let body = Body {
        shortfall: figures.shortfall().unwrap_or_default(),
        plots,
        banded: !frame.bands.is_empty(),
        rows: figures.ordered().into_iter().map(|(f, op)| row(f, op)).collect(),
        intended: figures.intended,
        errors: errors(run),
        bucket: span(all.width),
    };
    Ok(Some(body.render()?))
}

fn row(f: &str, op: &Operation) -> Row {
    let counts = [op.ok, op.failed, op.unknown].map(count);
    let times = [op.p50_ms, op.p90_ms, op.p99_ms, op.p999_ms, op.max_ms].map(known);
    Row { f: f.to_string(), cells: counts.into_iter().chain(times).collect() }
}

fn known(value: Option<f64>) -> String {
    value.map_or("–".into(), ms)
}

fn errors(run: &Run) -> Vec<String> {
    let mut all: Vec<_> = run.scan.errors.iter().collect();
    all.sort_by_key(|((f, error), n)| (std::cmp::Reverse(**n), f, error));
    let lines = all.into_iter().take(MAX_ERRORS);
    lines.map(|((f, error), n)| format!("{} × {f}: {error}", count(*n))).collect()
}
