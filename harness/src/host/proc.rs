//! What `/proc` says of processes.

use std::collections::HashMap;

/// One line of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub state: char,
    pub ppid: i32,
    pub pgrp: i32,
    pub session: i32,
    /// Clock ticks since boot: with the pid, the identity of a process.
    pub start: u64,
}

/// None if there is no such process (any more).
#[must_use]
pub fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(line: &str) -> Option<Stat> {
    // The command, in parentheses, may itself hold spaces and parentheses.
    let rest = &line[line.rfind(')')? + 1..];
    let f: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Stat {
        state: f.first()?.chars().next()?,
        ppid: f.get(1)?.parse().ok()?,
        pgrp: f.get(2)?.parse().ok()?,
        session: f.get(3)?.parse().ok()?,
        start: f.get(19)?.parse().ok()?,
    })
}

/// Whether the process runs or could run again: zombies are dead.
#[must_use]
pub fn alive(pid: i32) -> bool {
    stat(pid).is_some_and(|s| !matches!(s.state, 'Z' | 'X'))
}

/// Every pid that `/proc` shows.
#[must_use]
pub fn all() -> Vec<i32> {
    let Ok(dir) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    dir.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// `root` and its living descendants, parents first.
#[must_use]
pub fn tree(root: i32) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for pid in all() {
        if let Some(s) = stat(pid).filter(|s| !matches!(s.state, 'Z' | 'X')) {
            children.entry(s.ppid).or_default().push(pid);
        }
    }
    if !alive(root) {
        return Vec::new();
    }
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        found.extend(children.remove(&found[next]).unwrap_or_default());
        next += 1;
    }
    found
}

/// The living processes of the session that `leader` began.
#[must_use]
pub fn session(leader: i32) -> Vec<i32> {
    let member = |pid: &i32| {
        stat(*pid).is_some_and(|s| s.session == leader && !matches!(s.state, 'Z' | 'X'))
    };
    all().into_iter().filter(member).collect()
}

/// The living processes whose environment says `KEY=VALUE`. Those of other users are not seen.
#[must_use]
pub fn with_env(key: &str, value: &str) -> Vec<i32> {
    let wanted = format!("{key}={value}");
    let says = |pid: &i32| {
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|env| env.split(|b| *b == 0).any(|line| line == wanted.as_bytes()))
    };
    all().into_iter().filter(|p| alive(*p) && says(p)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_command_with_parentheses_is_read() {
        let s = parse_stat("7 (a) b) S 1 2 3 0 -1 4 5 6 7 8 9 10 11 12 13 14 15 16 99 1").unwrap();
        assert_eq!((s.state, s.ppid, s.pgrp, s.session), ('S', 1, 2, 3));
        assert_eq!(s.start, 99);
        assert_eq!(parse_stat("7 (a"), None);
    }

    #[test]
    fn this_process_is_the_root_of_its_tree() {
        let me = std::process::id() as i32;
        assert_eq!(tree(me)[0], me);
        assert!(tree(i32::MAX).is_empty());
    }
}
