//! One run of a matrix and its row.

use std::path::Path;
use std::process::{Command, Stdio};

use fencepost_checker::exit;
use serde_json::{Value, json};

use super::Args;
use super::plan::Cell;

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
    let checks = verdict["checks"].as_object().cloned().unwrap_or_default();
    row["checks"] = checks
        .iter()
        .map(|(name, c)| (name.clone(), c["verdict"].clone()))
        .collect();
    let acquire = &told["figures"]["ops"]["acquire"]["us"];
    row["acquire_p50_ms"] = millis(&acquire["p50"]);
    row["acquire_p99_ms"] = millis(&acquire["p99"]);
    row["throughput"] = told["figures"]["achieved_rate"].clone();
    row["recovery_ms"] = recovery(dir);
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

/// From the heal marker to the first acquire granted after it, in milliseconds; null where nothing had to heal.
fn recovery(dir: &Path) -> Value {
    let Ok(reader) = fencepost_history::Reader::open(&dir.join("history.jsonl")) else {
        return Value::Null;
    };
    let (mut faulted, mut healed) = (false, None);
    for record in reader {
        let Ok(record) = record else { break };
        let e = record.event;
        let phase = e.value.get("phase");
        faulted |= &*e.f == "fault";
        if &*e.f == "phase" && phase.and_then(fencepost_history::Value::as_str) == Some("healed") {
            healed = Some(e.time);
        }
        if let Some(at) = healed.filter(|_| faulted)
            && &*e.f == "acquire"
            && e.kind == fencepost_history::EventType::Ok
        {
            return ((e.time - at) as f64 / 1e6).into();
        }
    }
    Value::Null
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn recovered(lines: &[Value]) -> Value {
        let dir = tempfile::tempdir().unwrap();
        let text: Vec<String> = lines.iter().map(|l| format!("{l}\n")).collect();
        std::fs::write(dir.path().join("history.jsonl"), text.concat()).unwrap();
        recovery(dir.path())
    }

    #[test]
    fn recovery_runs_from_the_heal_to_the_next_grant() {
        let fault = json!({"index": 0, "time": 1_000_000, "process": "nemesis", "type": "info", "f": "fault",
                           "value": {"action": "heal", "status": "healed"}});
        let healed = json!({"index": 1, "time": 2_000_000, "process": "controller", "type": "info", "f": "phase",
                            "value": {"phase": "healed"}});
        let grant = json!({"index": 2, "time": 5_500_000, "process": 0, "type": "ok", "f": "acquire", "key": "L0",
                           "value": {"owner": "o"}});
        assert_eq!(
            recovered(&[fault.clone(), healed.clone(), grant.clone()]),
            3.5
        );
        assert_eq!(recovered(&[healed.clone(), grant]), Value::Null);
        assert_eq!(recovered(&[fault, healed]), Value::Null);
    }
}
