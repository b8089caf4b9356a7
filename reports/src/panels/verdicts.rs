//! The verdict table: what each check answered, what was expected, and why.

use askama::Template;

use super::Panel;
use crate::ReportError;
use crate::load::verdict::{Check, expected_word, word};
use crate::load::{MAX_EVIDENCE, Run};
use crate::words::{clip, Tone, count, seconds};
use fencepost_checker::verdict::Verdict;

pub const PANEL: Panel = Panel { id: "verdicts", title: "Verdicts", body };

#[derive(Template)]
#[template(
    ext = "html",
    source = r##"
<div class="wide"><table class="verdicts">
<thead><tr><th scope="col">Check</th><th scope="col">Answer</th><th scope="col">Expected</th><th scope="col">Reason and evidence</th><th scope="col" class="num">Findings</th><th scope="col" class="num">Exercised</th></tr></thead>
<tbody>
{% for c in checks %}<tr id="check-{{ c.name }}"{% if !c.met %} class="unmet"{% endif %}>
<th scope="row"><code>{{ c.name }}</code></th>
<td><span class="answer {{ c.class }}">{{ c.mark }} {{ c.answer }}</span></td>
<td>{{ c.expected }}{% if !c.met %}<br><strong class="tag">not met</strong>{% endif %}</td>
<td>{{ c.reason }}
{%- if !c.evidence.is_empty() %}<div class="evidence">Evidence:{% for e in c.evidence %} {% if e.linked %}<a class="ev" href="#e{{ e.index }}">{{ e.index }}</a>{% else %}{{ e.index }}{% endif %}{% endfor %}{% if c.more > 0 %} and {{ c.more }} more{% endif %}</div>{% endif %}
{%- if !c.story.is_empty() %}<details><summary>Story</summary><ol>{% for s in c.story %}<li><span class="when">{{ s.when }}</span> {{ s.text }}{% if s.linked %} <a class="ev" href="#e{{ s.index }}">{{ s.index }}</a>{% endif %}</li>{% endfor %}</ol></details>{% endif %}</td>
<td class="num">{{ c.count }}</td><td class="num">{{ c.exercised }}</td>
</tr>
{% endfor %}</tbody></table></div>
<p class="small">Exercised: how often the situation that the check is about arose. A check that was never exercised is unknown, never a pass.</p>
"##
)]
struct Body {
    checks: Vec<Row>,
}

struct Row {
    name: String,
    met: bool,
    class: &'static str,
    mark: &'static str,
    answer: &'static str,
    expected: &'static str,
    reason: String,
    evidence: Vec<Pointer>,
    more: usize,
    story: Vec<Step>,
    count: String,
    exercised: String,
}

struct Pointer {
    index: u64,
    linked: bool,
}

struct Step {
    when: String,
    text: String,
    index: u64,
    linked: bool,
}

fn body(run: &Run) -> Result<Option<String>, ReportError> {
    let Some(verdicts) = run.verdicts.as_ref().filter(|v| !v.checks.is_empty()) else {
        return Ok(None);
    };
    let told = verdicts.told().map(|c| c.name.as_str());
    let checks = verdicts.checks.iter().map(|c| row(c, run, told)).collect();
    Ok(Some(Body { checks }.render()?))
}

fn row(check: &Check, run: &Run, told: Option<&str>) -> Row {
    let r = &check.result;
    let tone = match r.verdict {
        Verdict::Holds => Tone::Good,
        Verdict::Violated => Tone::Bad,
        Verdict::Unknown => Tone::Unsure,
    };
    let pointers = r.evidence.iter().take(MAX_EVIDENCE);
    let evidence = pointers.map(|i| Pointer { index: *i, linked: run.shows(*i) });
    let steps = r.story.iter().take(MAX_EVIDENCE).map(|s| Step {
        when: seconds(s.time),
        text: clip(&s.text, 400),
        index: s.index,
        linked: run.shows(s.index),
    });
    // The told story stands above already.
    let above = told == Some(check.name.as_str());
    Row {
        name: check.name.clone(),
        met: check.as_expected(),
        class: tone.class(),
        mark: tone.mark(),
        answer: word(r.verdict),
        expected: expected_word(r.expected),
        reason: clip(&r.reason, 1_000),
        evidence: evidence.collect(),
        more: r.evidence.len().saturating_sub(MAX_EVIDENCE),
        story: if above { Vec::new() } else { steps.collect() },
        count: count(r.count),
        exercised: count(r.exercised),
    }
}
