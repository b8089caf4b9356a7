//! Running `nft` and `iptables` in the current thread's namespace.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::receipt::Reason;

/// Where firewall tools are, also for users whose PATH has no sbin.
const SBIN: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// `nft -f -` with these commands: all or nothing.
///
/// # Errors
/// When nft is missing or refuses.
pub fn apply(commands: &str) -> Result<(), Reason> {
    run("nft", &["-f", "-"], commands).map(|_| ())
}

/// All rules without counters, as text.
///
/// # Errors
/// When nft is missing or refuses.
pub fn rules() -> Result<String, Reason> {
    run("nft", &["-s", "list", "ruleset"], "")
}

/// Whether a tool can be started at all.
///
/// # Errors
/// A hint on how to get it.
pub fn have(tool: &str, package: &str) -> Result<(), Reason> {
    run(tool, &["--version"], "")
        .map(|_| ())
        .map_err(|_| Reason(format!("{tool} is missing: install the package {package}")))
}

/// Runs a tool with `input`; gives its output.
///
/// # Errors
/// When it cannot be started or exits with an error: its first line of complaint.
pub fn run(tool: &str, args: &[&str], input: &str) -> Result<String, Reason> {
    let path = std::env::var("PATH").unwrap_or_default();
    let failed = |e: &dyn std::fmt::Display| Reason(format!("{tool}: {e}"));
    let mut child = Command::new(tool)
        .args(args)
        .env("PATH", format!("{path}:{SBIN}"))
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| failed(&e))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A tool that has already failed closes its input; its message is what matters.
        let _ = stdin.write_all(input.as_bytes());
    }
    let out = child.wait_with_output().map_err(|e| failed(&e))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    Err(failed(
        &said.lines().next().unwrap_or("failed without a word"),
    ))
}
