//! `fencepost matrix`: services × faults, one run a cell.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{ContentArrangement, LineStyle, Table};
use fencepost_checker::exit;
use serde_json::{Value, json};

use super::{fail, show};
use crate::system::{self, SYSTEMS};

/// Scenarios that fit every service, by the word that `--faults` knows them by.
const COLUMNS: &[(&str, &str)] = &[
    ("none", "healthy"),
    ("pause", "client-pause"),
    ("cut", "holder-cut-off"),
    ("kill", "dead-holder"),
    ("packets", "packets"),
    ("down", "service-down"),
    ("leader", "leader-kill"),
    ("partition", "minority-partition"),
];

/// Columns that need several servers.
const CLUSTER: [&str; 2] = ["leader", "partition"];

/// Run services × faults, and print what held, what broke and how fast it was
#[derive(clap::Args)]
pub struct Args {
    /// Services, separated by commas; all when not given
    #[arg(long, value_delimiter = ',')]
    systems: Vec<String>,
    /// Columns, separated by commas: none, pause, cut, kill, packets, down, leader, partition; all when not given
    #[arg(long, value_delimiter = ',')]
    faults: Vec<String>,
    /// Where the servers run
    #[arg(long, value_name = "HOST", default_value = "local", value_parser = ["local", "docker"])]
    on: String,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder of the runs and of matrix.json
    #[arg(long, value_name = "DIR", default_value = "runs/matrix")]
    out: PathBuf,
    /// Print matrix.json and nothing else
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> ExitCode {
    let (systems, columns) = match (chosen_systems(args), chosen_columns(args)) {
        (Ok(s), Ok(c)) => (s, c),
        (Err(e), _) | (_, Err(e)) => return fail(exit::USAGE, e),
    };
    if args.out.join("matrix.json").exists() {
        return fail(
            exit::USAGE,
            format!(
                "{} already holds a matrix; name another --out",
                args.out.display()
            ),
        );
    }
    let (mut rows, mut worst) = (Vec::new(), exit::OK);
    for system in &systems {
        for (word, scenario) in columns
            .iter()
            .filter(|(word, _)| !CLUSTER.contains(word) || is_cluster(system))
        {
            if !args.json {
                eprintln!("{system}: {scenario}");
            }
            let (row, code) = cell(args, system, word, scenario);
            rows.push(row);
            if worst == exit::OK || code == exit::VIOLATED {
                worst = code;
            }
            if let Err(e) = save(&args.out, &rows) {
                return fail(exit::HARNESS, format!("{}: {e}", args.out.display()));
            }
        }
    }
    if args.json {
        println!("{}", json!({ "format": 1, "rows": rows }));
    } else {
        println!("{}", table(&rows));
        println!("matrix:  {}", show::near(&args.out.join("matrix.html")));
    }
    ExitCode::from(worst)
}

fn chosen_systems(args: &Args) -> Result<Vec<String>, String> {
    let known: Vec<&str> = SYSTEMS
        .iter()
        .map(|s| s.name)
        .filter(|n| *n != "noop")
        .collect();
    if args.systems.is_empty() {
        return Ok(known.iter().map(ToString::to_string).collect());
    }
    match args.systems.iter().find(|s| !known.contains(&s.as_str())) {
        Some(s) => Err(format!(
            "no system is called `{s}`: there are {}",
            known.join(", ")
        )),
        None => Ok(args.systems.clone()),
    }
}

fn chosen_columns(args: &Args) -> Result<Vec<(&'static str, &'static str)>, String> {
    let words: Vec<&str> = COLUMNS.iter().map(|(w, _)| *w).collect();
    if let Some(f) = args.faults.iter().find(|f| !words.contains(&f.as_str())) {
        return Err(format!(
            "no column is called `{f}`: there are {}",
            words.join(", ")
        ));
    }
    let wanted = |w: &str| args.faults.is_empty() || args.faults.iter().any(|f| f == w);
    Ok(COLUMNS.iter().copied().filter(|(w, _)| wanted(w)).collect())
}

/// Whether a service as it comes by default can lose one of its servers.
fn is_cluster(name: &str) -> bool {
    let made = system::open(name, system::Params::new());
    made.is_ok_and(|s| (0..3).all(|n| s.port(n).is_some()))
        && !matches!(name, "redis" | "raftlock" | "postgres")
}

/// One run, in a process of its own: the local host's namespaces are a process's.
fn cell(args: &Args, system: &str, word: &str, scenario: &str) -> (Value, u8) {
    let run = format!("{system}-{word}");
    let mut row = json!({ "system": system, "fault": word, "scenario": scenario, "run": run });
    let dir = args.out.join(&run);
    let program = match std::env::current_exe() {
        Ok(p) => p,
        Err(e) => return failed(row, &e.to_string()),
    };
    let output = Command::new(program)
        .args([
            "run",
            scenario,
            "--json",
            "--system",
            system,
            "--on",
            &args.on,
            "--seed",
            &args.seed.to_string(),
        ])
        .arg("--out")
        .arg(&dir)
        .stdin(Stdio::null())
        .output();
    let output = match output {
        Ok(o) => o,
        Err(e) => return failed(row, &e.to_string()),
    };
    let code = output
        .status
        .code()
        .and_then(|c| u8::try_from(c).ok())
        .unwrap_or(exit::HARNESS);
    let Ok(told) = serde_json::from_slice::<Value>(&output.stdout) else {
        let text = String::from_utf8_lossy(&output.stderr);
        return failed(
            row,
            text.lines()
                .last()
                .unwrap_or("no answer")
                .trim_start_matches("error: "),
        );
    };
    let verdict = &told["verdict"];
    row["outcome"] = verdict["outcome"].clone();
    let checks = verdict["checks"].as_object().cloned().unwrap_or_default();
    row["checks"] = checks
        .iter()
        .map(|(name, c)| (name.clone(), c["verdict"].clone()))
        .collect();
    let acquire = &told["figures"]["ops"]["acquire"]["us"];
    row["acquire_p50_ms"] = millis(&acquire["p50"]);
    row["acquire_p99_ms"] = millis(&acquire["p99"]);
    row["throughput"] = told["figures"]["achieved_rate"].clone();
    row["recovery_ms"] = recovery(&dir);
    (row, code)
}

fn failed(mut row: Value, why: &str) -> (Value, u8) {
    row["outcome"] = "harness-failure".into();
    row["checks"] = json!({});
    row["reason"] = why.into();
    (row, exit::HARNESS)
}

fn millis(us: &Value) -> Value {
    us.as_f64().map_or(Value::Null, |us| (us / 1e3).into())
}

/// From the heal marker to the first acquire granted after it, in milliseconds.
fn recovery(dir: &Path) -> Value {
    let Ok(reader) = fencepost_history::Reader::open(&dir.join("history.jsonl")) else {
        return Value::Null;
    };
    let mut healed = None;
    for record in reader {
        let Ok(record) = record else { break };
        let e = record.event;
        if &*e.f == "phase"
            && e.value
                .get("phase")
                .and_then(fencepost_history::Value::as_str)
                == Some("healed")
        {
            healed = Some(e.time);
        }
        if let Some(at) = healed
            && &*e.f == "acquire"
            && e.kind == fencepost_history::EventType::Ok
        {
            return ((e.time - at) as f64 / 1e6).into();
        }
    }
    Value::Null
}

fn save(dir: &Path, rows: &[Value]) -> Result<(), String> {
    let text =
        serde_json::to_string_pretty(&json!({ "format": 1, "rows": rows })).unwrap_or_default();
    std::fs::write(dir.join("matrix.json"), text).map_err(|e| e.to_string())?;
    fencepost_reports::render_matrix(dir).map_err(|e| e.to_string())
}

fn table(rows: &[Value]) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()))
        .set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header([
        "system",
        "fault",
        "outcome",
        "violated",
        "acquire p50/p99 ms",
        "cycles/s",
        "recovery ms",
    ]);
    for r in rows {
        let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
        let number = |v: &Value| v.as_f64().map_or("-".into(), |x| format!("{x:.1}"));
        let broke: Vec<String> = r["checks"]
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(_, v)| *v == "violated")
            .map(|(name, _)| name.clone())
            .collect();
        let said = if r["reason"].is_null() {
            broke.join(" ")
        } else {
            text(&r["reason"])
        };
        table.add_row([
            text(&r["system"]),
            text(&r["fault"]),
            text(&r["outcome"]),
            said,
            format!(
                "{}/{}",
                number(&r["acquire_p50_ms"]),
                number(&r["acquire_p99_ms"])
            ),
            number(&r["throughput"]),
            number(&r["recovery_ms"]),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_a_scenario() {
        for (word, scenario) in COLUMNS {
            assert!(crate::scenario::builtin(scenario).is_some(), "{word}");
        }
    }
}
