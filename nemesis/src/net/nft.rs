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

/// [`rules`] without what faults of ours have put there: faults may overlap, and each
/// compares what others own.
///
/// # Errors
/// As [`rules`].
pub fn foreign_rules() -> Result<String, Reason> {
    rules().map(|text| foreign(&text))
}

/// Leaves out tables `fencepost_…`, chains `fp_…` with the jumps to them, and a table in which
/// nothing but such chains was.
fn foreign(text: &str) -> String {
    let mut all = String::new();
    let mut table: Vec<&str> = Vec::new();
    for line in text
        .lines()
        .filter(|l| !l.trim().is_empty() && !l.starts_with('#'))
    {
        table.push(line);
        if line != "}" {
            continue;
        }
        let (kept, ours) = without_ours(&table);
        let rules = kept
            .iter()
            .filter(|l| l.starts_with("\t\t") && !l.starts_with("\t\ttype "));
        let whole_table_ours = table[0].contains(" fencepost_");
        if !(whole_table_ours || ours && rules.count() == 0) {
            kept.iter().for_each(|l| all.extend([l, "\n"]));
        }
        table.clear();
    }
    all
}

fn without_ours<'a>(table: &[&'a str]) -> (Vec<&'a str>, bool) {
    let (mut kept, mut inside, mut ours) = (Vec::new(), false, false);
    for line in table {
        let begins = line.starts_with("\tchain fp_");
        inside |= begins;
        let jump = line.contains(" jump fp_");
        ours |= begins || jump;
        if !inside && !jump {
            kept.push(*line);
        }
        if *line == "\t}" {
            inside = false;
        }
    }
    (kept, ours)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ours_is_left_out() {
        let theirs = "table inet t {\n\tchain c {\n\t\ttype filter hook input priority 0; policy accept;\n\t}\n}\n";
        let ours =
            "table inet fencepost_x_f1 {\n\tchain input {\n\t\tip saddr 10.0.0.1 drop\n\t}\n}\n";
        let mangle = |rule: &str| {
            format!(
                "table ip mangle {{\n\tchain fp_x_f2 {{\n\t\tcounter queue to 7001\n\t}}\n\n\tchain OUTPUT {{\n\t\ttype route hook output priority mangle; policy accept;\n\t\tcounter jump fp_x_f2\n{rule}\t}}\n}}\n"
            )
        };
        assert_eq!(foreign(theirs), theirs);
        assert_eq!(foreign(&format!("{theirs}\n{ours}{}", mangle(""))), theirs);
        let kept = foreign(&mangle("\t\tip daddr 192.0.2.1 drop\n"));
        assert!(
            kept.contains("192.0.2.1") && !kept.contains("fp_"),
            "{kept}"
        );
        assert_eq!(foreign(""), "");
    }
}
