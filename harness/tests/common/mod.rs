#![allow(dead_code, clippy::unwrap_used)]
//! Running the program as a person would.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_fencepost");

pub fn command(dir: &Path, line: &str) -> Command {
    let mut c = Command::new(PROGRAM);
    c.args(line.split_whitespace())
        .current_dir(dir)
        .stdin(Stdio::null());
    c
}

/// Runs `fencepost LINE` in `dir`; one at a time, since leases of runs side by side starve on a small machine.
pub fn fencepost(dir: &Path, line: &str) -> Output {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    command(dir, line).output().unwrap()
}

pub fn start(dir: &Path, line: &str) -> Child {
    command(dir, line)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Everything there is to know of a run that came out otherwise than wanted.
pub fn told(output: &Output) -> String {
    format!(
        "exit {}\n{}\n{}",
        code(output),
        stdout(output),
        stderr(output)
    )
}

pub fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

pub fn history(dir: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join("history.jsonl")).unwrap();
    text.lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect()
}

/// The answer of one check of a run.
pub fn verdict(dir: &Path, check: &str) -> String {
    json(&dir.join("verdict.json"))["checks"][check]["verdict"]
        .as_str()
        .unwrap_or("absent")
        .to_owned()
}

/// A file of the repository.
pub fn repo(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(path)
        .canonicalize()
        .unwrap()
}

pub fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|d| d.join(program).is_file())
}

/// Whether tests that need Docker were asked for; they must then run.
pub fn docker_wanted() -> bool {
    std::env::var("FENCEPOST_E2E").is_ok_and(|v| v == "docker")
}

/// Whether all of these programs are there. Says what is missing.
pub fn have(programs: &[&str]) -> bool {
    let missing: Vec<_> = programs.iter().filter(|p| !on_path(p)).collect();
    if missing.is_empty() {
        return true;
    }
    assert!(
        !docker_wanted(),
        "FENCEPOST_E2E=docker, but {missing:?} are not on PATH"
    );
    println!("skipped: {missing:?} not on PATH");
    false
}

/// Until the load of a run that was started has begun.
pub fn wait_for_load(run: &Path) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while std::fs::metadata(run.join("history.jsonl")).map_or(0, |m| m.len()) < 20_000 {
        assert!(std::time::Instant::now() < end, "the load did not begin");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Nothing that carries this run's id may be left.
pub fn nothing_left(dir: &Path) {
    let run_id = json(&dir.join("run.json"))["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let marked = format!("FENCEPOST_RUN={run_id}");
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let ours = environ.split(|b| *b == 0).any(|v| v == marked.as_bytes());
        assert!(
            !ours,
            "process {:?} is left of run {run_id}",
            entry.file_name()
        );
    }
}
