#![allow(clippy::unwrap_used)]
//! docs/scenario.md is kept true: every key, and the default of each.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Scenario;

const DOC: &str = include_str!("../../../docs/scenario.md");

/// Rows of the table of keys: name to default, as written.
fn documented() -> BTreeMap<String, Value> {
    let table = DOC
        .split("## Keys")
        .nth(1)
        .unwrap()
        .split("## Fault plans")
        .next()
        .unwrap();
    let rows = table.lines().filter(|l| l.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let key = cells[1].trim_matches('`').to_owned();
        let default = cells[3].trim_matches('`');
        (
            key,
            serde_json::from_str(default).unwrap_or_else(|e| panic!("{row}: {e}")),
        )
    })
    .collect()
}

/// Leaves of the default scenario; tables that files fill freely count as leaves.
fn leaves() -> BTreeMap<String, Value> {
    let Value::Object(top) = serde_json::to_value(Scenario::default()).unwrap() else {
        panic!()
    };
    let mut all = BTreeMap::new();
    for (key, value) in top {
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                all.extend(inner.into_iter().map(|(k, v)| (format!("{key}.{k}"), v)));
            }
            value => drop(all.insert(key, value)),
        }
    }
    all
}

/// Lengths of time compare by what they mean.
fn same(key: &str, a: &Value, b: &Value) -> bool {
    let span = |v: &Value| {
        v.as_str()?
            .parse::<fencepost_nemesis::schedule::Span>()
            .ok()
    };
    match (span(a), span(b)) {
        (Some(x), Some(y)) => format!("{x:?}") == format!("{y:?}"),
        _ => a == b || panic!("{key}: {a} is documented, {b} is true"),
    }
}

#[test]
fn every_key_is_documented_with_its_default() {
    let (doc, code) = (documented(), leaves());
    assert_eq!(
        doc.keys().collect::<Vec<_>>(),
        code.keys().collect::<Vec<_>>()
    );
    for (key, default) in &doc {
        assert!(
            same(key, default, &code[key]),
            "{key}: {default} is documented, {} is true",
            code[key]
        );
    }
}

#[test]
fn the_example_is_a_scenario() {
    let example: String = DOC
        .lines()
        .filter_map(|l| l.strip_prefix("    "))
        .flat_map(|l| [l, "\n"])
        .collect();
    let s = super::parse("example.toml", &example).unwrap();
    assert_eq!((s.faults.len(), s.story.lock.as_str()), (1, "story"));
}
