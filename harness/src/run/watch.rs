//! Looks after the servers: one that ends although neither a fault nor the run ended it goes into the history, with how
//! it ended and its last words (the check `servers-run-on`).

use std::collections::BTreeSet;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::core::{Command, CoreHandle};
use super::env::RunEnv;

const EVERY: Duration = Duration::from_millis(100);
/// How long its host is asked how a server ended, before nobody knows.
const ASKED: Duration = Duration::from_secs(2);
/// Lines of a log that are told, and characters of each.
const LINES: usize = 3;
const WIDTH: usize = 300;
const TAIL: u64 = 8192;

/// A server's end, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// `node:1`
    pub node: String,
    pub name: String,
    /// `exit status: 1`, `signal: 9 (SIGKILL)`
    pub how: String,
    /// The last lines of its log.
    pub log: Vec<String>,
}

/// Watches until it is aborted.
pub async fn nodes(env: Arc<RunEnv>, core: CoreHandle) {
    let mut told = BTreeSet::new();
    let mut each = tokio::time::interval(EVERY);
    loop {
        each.tick().await;
        let dead = env.dead_nodes();
        told.retain(|n| dead.contains(n));
        for n in dead {
            if told.insert(n) {
                core.tell(Command::NodeEnded(Box::new(ended(&env, n).await)));
            }
        }
    }
}

async fn ended(env: &RunEnv, n: usize) -> Ended {
    let how = env.host.node_exit_within(n, ASKED).await;
    let node = format!("node:{n}");
    let log = env.logs.join(format!("node-{n}.log"));
    Ended {
        name: env
            .nodes
            .get(n)
            .map_or_else(String::new, |u| u.name().into()),
        how: how.unwrap_or_else(|| "nobody knows how".into()),
        log: last_lines(&log),
        node,
    }
}

/// None where there is no such file, or nothing in it.
fn last_lines(path: &Path) -> Vec<String> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = std::fs::File::open(path)?;
        let from = file.metadata()?.len().saturating_sub(TAIL);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let said = text.lines().map(plain).filter(|l| !l.is_empty());
    let mut lines: Vec<String> = said.rev().take(LINES).collect();
    lines.reverse();
    lines
}

/// A line without colours and other control sequences.
fn plain(line: &str) -> String {
    let mut chars = line.chars();
    let mut text = String::new();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            // `ESC [ … letter`.
            chars.by_ref().find(char::is_ascii_alphabetic);
        } else if !c.is_control() {
            text.push(c);
        }
    }
    text.trim().chars().take(WIDTH).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_last_lines_of_a_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node-0.log");
        assert!(last_lines(&path).is_empty());
        let long = "x".repeat(10_000);
        std::fs::write(
            &path,
            "\u{1b}[2m12:00\u{1b}[0m \u{1b}[31mERROR\u{1b}[0m it broke",
        )
        .unwrap();
        assert_eq!(last_lines(&path), ["12:00 ERROR it broke"]);
        std::fs::write(&path, format!("{long}\none\n\ntwo\n three \u{7}\nfour\n\n")).unwrap();
        assert_eq!(last_lines(&path), ["two", "three", "four"]);
        std::fs::write(&path, &long).unwrap();
        assert_eq!(last_lines(&path), ["x".repeat(WIDTH)]);
    }
}
