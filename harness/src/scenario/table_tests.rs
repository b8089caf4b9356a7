#![allow(clippy::unwrap_used)]
//! docs/scenarios.md is written from the scenarios up to its first heading of second rank: FENCEPOST_FIX=1 writes it,
//! else it must be the same.

use fencepost_checker::verdict::Expected;
use fencepost_nemesis::{Targets, schedule::Plan};

use super::{Scenario, builtins, parse};

const INTRO: &str = "\
# Built-in scenarios

`fencepost run NAME` carries each of them out as it stands here; `--system` and `--on` choose another service and host. In
*expected*, a check that is not named must not be violated. This table is written by a test from `scenarios/`.

| scenario | shows | system | host | faults | expected | source |
|---|---|---|---|---|---|---|
";

fn table() -> String {
    let mut text = INTRO.to_owned();
    for (name, toml) in builtins() {
        let s = parse(&format!("scenarios/{name}.toml"), toml).unwrap();
        text.push_str(&format!(
            "| `{name}` | {} | {} | {} | {} | {} | {} |\n",
            s.about,
            s.system,
            s.host.word(),
            faults(&s),
            expected(&s),
            s.source
        ));
    }
    text
}

fn faults(s: &Scenario) -> String {
    let one = |name: &str, target: &Targets| {
        let targets: Vec<String> = target.0.iter().map(ToString::to_string).collect();
        format!("{name} of {}", targets.join(", "))
    };
    let word = |p: &Plan| match &p.fault {
        Some(name) => one(name, &p.target),
        None => {
            let choices: Vec<String> = p.mix.iter().map(|c| one(&c.fault, &c.target)).collect();
            choices.join(" or ")
        }
    };
    let all: Vec<String> = s.faults.iter().map(word).collect();
    if all.is_empty() {
        "none".into()
    } else {
        all.join("; ")
    }
}

fn expected(s: &Scenario) -> String {
    let named = |wanted: Expected, word: &str| {
        let names: Vec<String> = s
            .expect
            .iter()
            .filter(|(_, e)| **e == wanted)
            .map(|(n, _)| format!("`{n}`"))
            .collect();
        (!names.is_empty()).then(|| format!("{word}: {}", names.join(", ")))
    };
    let parts = [
        named(Expected::Violated, "violated"),
        named(Expected::Holds, "holds"),
        named(Expected::Any, "any"),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

#[test]
fn the_page_of_scenarios_is_true() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/scenarios.md");
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let rest = found.find("\n## ").map_or("", |at| &found[at..]);
    let wanted = table() + rest;
    if std::env::var_os("FENCEPOST_FIX").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/scenarios.md is not what scenarios/ say: run the test with FENCEPOST_FIX=1"
    );
}
