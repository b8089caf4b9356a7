//! The scenario as it was resolved for this run.

use askama::Template;
use fencepost_history::Value;

use super::Panel;
use crate::ReportError;
use crate::load::Run;
use crate::toml;

pub const PANEL: Panel = Panel { id: "scenario", title: "Scenario", body };

const MAX_TEXT: usize = 60_000;

#[derive(Template)]
#[template(
    ext = "html",
    source = r##"
{% if !about.is_empty() %}<p>{{ about }}</p>{% endif %}
<details open><summary>As resolved</summary><pre>{{ text }}</pre></details>
{% if cut %}<p class="small">Cut here; the whole is in <code>run.json</code>.</p>{% endif %}
"##
)]
struct Body {
    about: String,
    text: String,
    cut: bool,
}

fn body(run: &Run) -> Result<Option<String>, ReportError> {
    let Some(scenario) = run.meta.ordered.get("scenario").filter(|s| **s != Value::Null) else {
        return Ok(None);
    };
    let whole = toml::text(scenario);
    let text: String = whole.chars().take(MAX_TEXT).collect();
    let about = ["about", "description", "title"];
    let about = about.iter().find_map(|name| scenario.get(name)?.as_str());
    let body = Body {
        about: about.unwrap_or("").to_string(),
        cut: text.len() < whole.len(),
        text,
    };
    Ok(Some(body.render()?))
}
