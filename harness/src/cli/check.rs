//! `fencepost check`: a run folder by its checks, or a history file by a model.

use std::fs::File;
use std::io::{BufWriter, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use fencepost_checker::judge::{JudgeError, judge};
use fencepost_checker::{
    CheckError, Engine, Options, Outcome, Report, check_history, check_records, exit,
};
use fencepost_history::{ReadError, Reader, Value, Writer, read_path};
use fencepost_nemesis::schedule::Span;
use serde_json::json;

use super::{fail, show};
use crate::scenario::longest;

/// Judge a run folder again, or check one history file against a model
///
/// A run folder is judged by all its checks, and verdict.json is written. A file (JSON lines,
/// Jepsen EDN or text, also gzip or zstd) is checked for linearizability against --model.
#[derive(clap::Args)]
pub struct Args {
    /// A run folder, or a history file
    #[arg(default_value = "runs/latest")]
    path: PathBuf,
    /// Model that a file is checked against, such as owner-mutex, fenced-mutex or register
    #[arg(long)]
    model: Option<String>,
    /// Value that a register, map, queue or set starts from, as JSON
    #[arg(long)]
    initial: Option<String>,
    /// Longest time to search, such as 30s
    #[arg(long)]
    limit: Option<Span>,
    /// Most memory that the search may hold, such as 4G
    #[arg(long, value_parser = bytes, default_value = "4G")]
    memory: u64,
    /// auto, fast, search, or both to compare them
    #[arg(long, default_value = "auto")]
    engine: Engine,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> ExitCode {
    if !args.path.exists() {
        return fail(
            exit::USAGE,
            format!(
                "{}: no such run folder or history file",
                args.path.display()
            ),
        );
    }
    if args.path.is_dir() {
        return match &args.model {
            None => folder(&args.path, args.json),
            Some(_) => file(&args.path.join("history.jsonl"), args),
        };
    }
    file(&args.path, args)
}

fn folder(dir: &Path, json: bool) -> ExitCode {
    let verdict = match judge(dir) {
        Ok(v) => v,
        Err(e @ JudgeError::Read { .. }) => return fail(exit::USAGE, e),
        Err(e) => return fail(exit::MALFORMED, e),
    };
    // A folder that cannot be written to can still be judged.
    if let Err(e) = std::fs::write(dir.join("verdict.json"), verdict.to_json()) {
        eprintln!("warning: verdict.json: {e}");
    }
    if json {
        print!("{}", verdict.to_json())
    } else {
        show::verdict(&verdict)
    }
    ExitCode::from(verdict.exit_code)
}

fn file(path: &Path, args: &Args) -> ExitCode {
    let Some(model) = &args.model else {
        return fail(
            exit::USAGE,
            "a history file needs --model; `fencepost check --help` names some",
        );
    };
    let initial = match args.initial.as_deref().map(initial).transpose() {
        Ok(v) => v,
        Err(e) => return fail(exit::USAGE, e),
    };
    let options = Options {
        engine: args.engine,
        limit: args
            .limit
            .as_ref()
            .map(|s| longest(s, Duration::from_secs(1))),
        memory: args.memory,
        ..Options::default()
    };
    match checked(path, model, initial.as_ref(), &options) {
        Ok((report, warnings)) => told(&report, &warnings, args.json),
        Err(trouble) => {
            let (code, what) = refusal(&trouble, path, Path::new("."));
            fail(code, what)
        }
    }
}

/// Exit code and words for a file that was not judged.
fn refusal(trouble: &Trouble, path: &Path, here: &Path) -> (u8, String) {
    let named = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    match trouble {
        Trouble::Read(e @ ReadError::Io { .. }) => (exit::USAGE, e.to_string()),
        Trouble::Read(e) => (exit::MALFORMED, named(e)),
        Trouble::Check(e @ CheckError::Malformed { .. }) => (exit::MALFORMED, named(e)),
        Trouble::Check(e @ CheckError::Disagreement { .. }) => {
            let kept = match keep(path, here) {
                Ok(kept) => format!("it is saved as {}", kept.display()),
                Err(why) => format!("it could not be saved: {why}"),
            };
            (exit::INTERNAL, format!("{e}; {kept}"))
        }
        Trouble::Check(e) => (exit::USAGE, e.to_string()),
    }
}

/// Saves a history on which the engines disagree beside whatever is there, as JSON lines.
fn keep(path: &Path, here: &Path) -> Result<PathBuf, Box<dyn std::error::Error>> {
    let history = read_path(path)?;
    let stem = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = stem.split('.').next().unwrap_or_default().to_owned();
    let (kept, file) = (1..)
        .map(|n| here.join(format!("disagreement-{stem}-{n}.jsonl")))
        .find_map(|p| match File::create_new(&p) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => None,
            made => Some(made.map(|f| (p, f))),
        })
        .ok_or("no name is free")??;
    let mut out = Writer::new(BufWriter::new(file));
    out.write_all(&history.events)?;
    out.flush()?;
    Ok(kept)
}

enum Trouble {
    Read(ReadError),
    Check(CheckError),
}

/// Streams the file through the check; one that is not in order is read whole and sorted.
fn checked(
    path: &Path,
    model: &str,
    initial: Option<&Value>,
    options: &Options,
) -> Result<(Report, Vec<String>), Trouble> {
    let mut reader = Reader::open(path).map_err(Trouble::Read)?;
    let mut broken = None;
    let records = std::iter::from_fn(|| match reader.next()? {
        Ok(record) => Some(record),
        Err(e) => {
            broken = Some(e);
            None
        }
    });
    let report = check_records(records, model, initial, options);
    match broken {
        None => {
            let warnings = reader.warnings().iter().map(ToString::to_string).collect();
            Ok((report.map_err(Trouble::Check)?, warnings))
        }
        Some(ReadError::OutOfOrder { .. }) => {
            let history = read_path(path).map_err(Trouble::Read)?;
            let warnings = history.warnings.iter().map(ToString::to_string).collect();
            let report =
                check_history(&history, model, initial, options).map_err(Trouble::Check)?;
            Ok((report, warnings))
        }
        Some(e) => Err(Trouble::Read(e)),
    }
}

fn told(report: &Report, warnings: &[String], json: bool) -> ExitCode {
    let (word, code) = match &report.outcome {
        // Nothing to check is no reason to pass.
        Outcome::Linearizable if report.is_vacuous() => ("unknown", exit::UNKNOWN),
        Outcome::Linearizable => ("linearizable", exit::OK),
        Outcome::Violated(_) => ("violated", exit::VIOLATED),
        Outcome::Unknown(_) => ("unknown", exit::UNKNOWN),
    };
    if json {
        let mut object = json!({
            "outcome": word, "exit_code": code, "model": report.model, "decided_by": report.decided_by,
            "operations": report.operations, "unknown": report.unknown, "keys": report.keys,
            "notes": report.notes, "warnings": warnings, "millis": report.millis,
        });
        match &report.outcome {
            Outcome::Violated(e) => object["explanation"] = json!(e),
            Outcome::Unknown(s) => object["spent"] = json!(s),
            Outcome::Linearizable => {}
        }
        println!("{object}");
        return ExitCode::from(code);
    }
    println!(
        "{word} as {}: {} operations ({} of unknown outcome) on {} keys, decided by {} in {:.1} ms",
        report.model,
        report.operations,
        report.unknown,
        report.keys,
        report.decided_by,
        report.millis
    );
    match &report.outcome {
        Outcome::Violated(e) => {
            println!("{}", e.summary);
            if let Some(from) = e.from {
                let states: Vec<String> = e.start.iter().map(ToString::to_string).collect();
                println!("  after #{from} the state is {}", states.join(" or "));
            }
            for step in &e.story {
                println!("  #{:<7} {}", step.index, step.text);
            }
        }
        Outcome::Unknown(s) => println!("{} ({} states, {} ms)", s.reason, s.states, s.millis),
        Outcome::Linearizable => {}
    }
    for note in report.notes.iter().chain(warnings) {
        println!("note: {note}");
    }
    ExitCode::from(code)
}

fn initial(text: &str) -> Result<Value, String> {
    let json: serde_json::Value = serde_json::from_str(text)
        .map_err(|e| format!("--initial {text}: {e}; strings need quotes"))?;
    Ok(crate::run::from_json(&json))
}

/// Bytes, with K, M or G.
fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err("write it as 500M or 4G".into()),
    };
    let n: u64 = digits
        .parse()
        .map_err(|_| "write it as 500M or 4G".to_owned())?;
    n.checked_mul(1 << shift)
        .ok_or_else(|| "more than there is".into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_disagreement_is_internal_and_its_history_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let events = "{\"index\":3,\"time\":1,\"process\":0,\"type\":\"invoke\",\"f\":\"acquire\",\"value\":null}\n";
        let file = dir.path().join("mine.jsonl");
        std::fs::write(&file, events).unwrap();
        let wrong = Trouble::Check(CheckError::Disagreement {
            key: "k".into(),
            fast: "linearizable".into(),
            search: "violated".into(),
        });
        for n in 1..3 {
            let (code, what) = refusal(&wrong, &file, dir.path());
            let kept = dir.path().join(format!("disagreement-mine-{n}.jsonl"));
            assert_eq!(code, 8);
            assert!(
                what.contains(&format!("saved as {}", kept.display())),
                "{what}"
            );
            assert!(what.contains("key k") && !what.contains('\n'), "{what}");
            assert_eq!(std::fs::read_to_string(kept).unwrap(), events);
        }
        let (code, what) = refusal(&wrong, &file, &dir.path().join("absent"));
        assert_eq!(code, 8);
        assert!(what.contains("could not be saved"), "{what}");
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes("4G"), Ok(4 << 30));
        assert_eq!(bytes("77"), Ok(77));
        for bad in ["", "G", "4T", "99999999999G", "1.5G"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }
}
