//! The commands that repeat the run, and the versions of what took part.

use askama::Template;
use serde_json::Value;

use super::Panel;
use crate::ReportError;
use crate::load::Run;

pub const PANEL: Panel = Panel { id: "repeat", title: "Do it again", body };

#[derive(Template)]
#[template(
    ext = "html",
    source = r##"
{% if !command.is_empty() %}<p>Run it again:</p><pre class="command">{{ command }}</pre>{% endif %}
<p>Judge and report this folder again, anywhere:</p>
<pre class="command">fencepost check DIR
fencepost report DIR</pre>
<p class="small">A seed repeats the schedule of load and faults. Real services keep their own interleaving.</p>
{% if !facts.is_empty() %}<table class="facts"><caption>Versions</caption><tbody>
{% for (name, value) in facts %}<tr><th scope="row">{{ name }}</th><td>{{ value }}</td></tr>
{% endfor %}</tbody></table>{% endif %}
"##
)]
struct Body {
    command: String,
    facts: Vec<(String, String)>,
}

fn body(run: &Run) -> Result<Option<String>, ReportError> {
    let meta = &run.meta;
    let mut facts = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            facts.push((name.to_string(), value));
        }
    };
    let text = |path: &str| meta.get(path).map(scalar);
    add("fencepost", text("fencepost"));
    add("system", meta.system());
    add("store", text("store.kind"));
    add("host", text("host"));
    add("seed", text("seed"));
    add("run", text("run_id"));
    add("started", text("started"));
    add("status", text("status"));
    for (name, value) in meta.get("versions").and_then(Value::as_object).into_iter().flatten() {
        add(name, Some(scalar(value)));
    }
    let command = meta.command().unwrap_or_default();
    Ok(Some(Body { command, facts }.render()?))
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
