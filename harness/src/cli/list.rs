//! `fencepost list`.

use std::process::ExitCode;

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use fencepost_nemesis::registry::FAULTS;
use fencepost_workloads::stores::STORES;

use crate::scenario::{self, builtins};
use crate::system::SYSTEMS;

/// List what can be used in scenarios and on the command line
#[derive(clap::Args)]
pub struct Args {
    /// One kind only
    kind: Option<Kind>,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Scenarios,
    Systems,
    Faults,
    Workloads,
    Stores,
}

type Rows = Vec<(String, String)>;

const WORKLOADS: [(&str, &str); 4] = [
    (
        "register",
        "read the whole value, work, write {value, prev} under one grant",
    ),
    (
        "set",
        "read the set, work, write it back with one element more, under one grant",
    ),
    ("mixed", "register and set by turns"),
    ("lock", "acquire, hold, release"),
];

pub fn main(args: &Args) -> ExitCode {
    let kinds = [
        (Kind::Scenarios, "scenarios", scenarios()),
        (
            Kind::Systems,
            "systems",
            rows(SYSTEMS.iter().map(|s| (s.name, s.about))),
        ),
        (
            Kind::Faults,
            "faults",
            rows(FAULTS.iter().map(|f| (f.name, f.about))),
        ),
        (Kind::Workloads, "workloads", rows(WORKLOADS)),
        (
            Kind::Stores,
            "stores",
            rows(STORES.iter().map(|s| (s.name, s.about))),
        ),
    ];
    let chosen = kinds
        .into_iter()
        .filter(|(k, ..)| args.kind.is_none_or(|wanted| wanted == *k));
    if args.json {
        let all = chosen.map(|(_, name, rows)| {
            (
                name.to_owned(),
                serde_json::Map::from_iter(rows.into_iter().map(|(n, a)| (n, a.into()))).into(),
            )
        });
        println!("{}", serde_json::Value::Object(all.collect()));
        return ExitCode::SUCCESS;
    }
    for (n, (_, title, rows)) in chosen.enumerate() {
        println!("{}{title}", if n == 0 { "" } else { "\n" });
        let mut table = Table::new();
        table
            .load_style(NOTHING)
            .set_content_arrangement(ContentArrangement::Dynamic);
        for (name, about) in rows {
            table.add_row([format!("  {name}"), about]);
        }
        println!("{table}");
    }
    ExitCode::SUCCESS
}

fn rows<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> Rows {
    entries
        .into_iter()
        .map(|(n, a)| (n.to_owned(), a.to_owned()))
        .collect()
}

fn scenarios() -> Rows {
    let about = |name: &str, text: &str| {
        scenario::parse(name, text)
            .map(|s| s.about)
            .unwrap_or_else(|e| e.to_string())
    };
    builtins()
        .map(|(name, text)| (name.to_owned(), about(name, text)))
        .collect()
}
