//! One run of a matrix and its row.

use std::path::Path;
use std::process::{Command, Stdio};

use fencepost_checker::exit;
use serde_json::{Value, json};

use super::plan::Cell;
use super::{Args, gaps};

/// One run, in a process of its own: the local host's namespaces are a process's.
pub fn run(args: &Args, cell: &Cell) -> (Value, u8) {
    let row = json!({
        "system": cell.system, "fault": cell.fault, "scenario": cell.scenario,
        "seed": cell.seed, "run": cell.run(), "host": args.on,
    });
    let dir = args.out.join(cell.run());
    let output = std::env::current_exe().and_then(|program| {
        let mut command = Command::new(program);
        command
            .args(["run", &cell.scenario, "--json", "--system", &cell.system])
            .args(["--on", &args.on, "--seed", &cell.seed.to_string()])
            .args(args.params.iter().flat_map(|p| ["--param", p]))
            .arg("--out")
            .arg(&dir)
            .stdin(Stdio::null())
            .output()
    });
    let output = match output {
        Ok(o) => o,
        Err(e) => return failed(row, &e.to_string(), exit::HARNESS),
    };
    let code = output.status.code().and_then(|c| u8::try_from(c).ok());
    let code = code.unwrap_or(exit::HARNESS);
    let Ok(told) = serde_json::from_slice::<Value>(&output.stdout) else {
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().last().unwrap_or("no answer");
        return failed(row, last.trim_start_matches("error: "), code);
    };
    (filled(row, &told, &dir), code)
}

/// A run that did not come to a verdict; a service that does not offer what the scenario needs has none.
fn failed(mut row: Value, why: &str, code: u8) -> (Value, u8) {
    let unfit = code == exit::USAGE;
    row["outcome"] = if unfit {
        "not-applicable"
    } else {
        "harness-failure"
    }
    .into();
    row["checks"] = json!({});
    row["reason"] = why.into();
    (row, code)
}

fn filled(mut row: Value, told: &Value, dir: &Path) -> Value {
    let verdict = &told["verdict"];
    row["outcome"] = verdict["outcome"].clone();
    if verdict["outcome"] != "as-expected" {
        row["reason"] = verdict["reason"].clone();
    }
    row["undemanded"] = told["undemanded"].clone();
    let checks = verdict["checks"].as_object().cloned().unwrap_or_default();
    row["checks"] = checks
        .iter()
        .map(|(name, c)| (name.clone(), c["verdict"].clone()))
        .collect();
    let acquire = &told["figures"]["ops"]["acquire"]["us"];
    row["acquire_p50_ms"] = millis(&acquire["p50"]);
    row["acquire_p99_ms"] = millis(&acquire["p99"]);
    row["throughput"] = told["figures"]["achieved_rate"].clone();
    let gaps = gaps::read(dir);
    row["outage_ms"] = gaps.outage_ms.into();
    row["recovery_ms"] = gaps.recovery_ms.into();
    let file = std::fs::read(dir.join("run.json")).unwrap_or_default();
    let file: Value = serde_json::from_slice(&file).unwrap_or_default();
    row["version"] = file["system"]["version"].clone();
    // Of a set, every element that is missing is one lost update.
    if file["workload"] == "set" {
        let lost = &checks["lost-update"];
        row["updates"] = json!({ "acknowledged": lost["exercised"], "lost": lost["count"] });
    }
    row
}

fn millis(us: &Value) -> Value {
    us.as_f64().map_or(Value::Null, |us| (us / 1e3).into())
}
