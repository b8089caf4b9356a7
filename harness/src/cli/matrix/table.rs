//! A matrix as text.

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{ContentArrangement, LineStyle, Table};
use serde_json::Value;

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or("")
}

/// What broke, and why a run that did not come out as expected did not.
fn said(row: &Value) -> String {
    let checks = row["checks"].as_object().into_iter().flatten();
    let broke = checks
        .filter(|(_, v)| *v == "violated")
        .map(|(name, _)| name.as_str());
    let broke: Vec<&str> = broke.collect();
    // Why it was tolerated is worth saying where something broke.
    let tolerated = row["undemanded"].as_array().filter(|_| !broke.is_empty());
    let tolerated = tolerated.into_iter().flatten().filter_map(Value::as_str);
    let reason = row["reason"].as_str();
    let words = broke.into_iter().chain(reason).chain(tolerated);
    words.collect::<Vec<_>>().join(" ")
}

/// One line for a run that has just ended.
pub fn line(row: &Value) -> String {
    format!(
        "{} {} seed {}: {} {}",
        text(row, "system"),
        text(row, "scenario"),
        row["seed"],
        text(row, "outcome"),
        said(row)
    )
    .trim_end()
    .to_owned()
}

/// How many runs came out as expected.
pub fn tally(rows: &[Value]) -> String {
    let count = |outcome: &str| rows.iter().filter(|r| r["outcome"] == outcome).count();
    let (good, unfit) = (count("as-expected"), count("not-applicable"));
    let run = rows.len() - unfit;
    match unfit {
        0 => format!("{good} of {run} runs came out as expected"),
        n => {
            format!("{good} of {run} runs came out as expected; {n} do not apply to their service")
        }
    }
}

pub fn table(rows: &[Value]) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()))
        .set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header([
        "system",
        "fault",
        "seed",
        "outcome",
        "violated",
        "acquire p50/p99 ms",
        "cycles/s",
        "outage ms",
        "heal to grant ms",
    ]);
    for r in rows {
        let number = |v: &Value| v.as_f64().map_or("-".into(), |x| format!("{x:.1}"));
        table.add_row([
            text(r, "system").to_owned(),
            text(r, "fault").to_owned(),
            r["seed"].to_string(),
            text(r, "outcome").to_owned(),
            said(r),
            format!(
                "{}/{}",
                number(&r["acquire_p50_ms"]),
                number(&r["acquire_p99_ms"])
            ),
            number(&r["throughput"]),
            number(&r["outage_ms"]),
            number(&r["recovery_ms"]),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_does_not_apply_is_not_counted() {
        let rows = [
            json!({"outcome": "as-expected"}),
            json!({"outcome": "violated"}),
            json!({"outcome": "not-applicable"}),
        ];
        let tally = tally(&rows);
        assert!(tally.starts_with("1 of 2 runs"), "{tally}");
    }

    #[test]
    fn what_broke_without_being_demanded_says_why() {
        let mut row = json!({"system": "r", "scenario": "s", "seed": 1, "outcome": "as-expected",
                             "checks": {"fence-monotonic": "violated"}, "undemanded": ["not demanded of r: x"]});
        let broke = "r s seed 1: as-expected fence-monotonic not demanded of r: x";
        assert_eq!(line(&row), broke);
        row["checks"]["fence-monotonic"] = "holds".into();
        assert_eq!(line(&row), "r s seed 1: as-expected");
    }

    #[test]
    fn a_line_says_what_broke_and_why() {
        let row = json!({"system": "etcd", "scenario": "s", "seed": 3, "outcome": "violated",
                         "checks": {"fair": "holds", "lost-update": "violated"}, "reason": "one is missing"});
        assert_eq!(
            line(&row),
            "etcd s seed 3: violated lost-update one is missing"
        );
    }
}
