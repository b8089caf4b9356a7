//! Processes as faults see them: ids, pids, threads' states, network namespace.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// `worker:N` or `node:N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ProcId {
    Node(u32),
    Worker(u32),
}

impl fmt::Display for ProcId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcId::Node(n) => write!(f, "node:{n}"),
            ProcId::Worker(n) => write!(f, "worker:{n}"),
        }
    }
}

impl From<ProcId> for String {
    fn from(id: ProcId) -> String {
        id.to_string()
    }
}

impl FromStr for ProcId {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let wrong = || format!("{s:?} is no process: write node:N or worker:N");
        let (word, n) = s.split_once(':').ok_or_else(wrong)?;
        let n = n.parse().map_err(|_| wrong())?;
        match word {
            "node" => Ok(ProcId::Node(n)),
            "worker" => Ok(ProcId::Worker(n)),
            _ => Err(wrong()),
        }
    }
}

impl TryFrom<String> for ProcId {
    type Error = String;

    fn try_from(s: String) -> Result<Self, String> {
        s.parse()
    }
}

/// How all pids of a node or worker are found from its root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// Every process of this process group.
    Group(i32),
    /// The root and all its descendants.
    Tree,
    /// Every process in the root's pid namespace (a container). Refused when
    /// that is our own namespace.
    PidNamespace,
    /// Every process listed in this directory's `cgroup.procs` and below it.
    Cgroup(PathBuf),
}

/// One running node or worker. All pids are pids of the host.
#[derive(Clone, Debug)]
pub struct Proc {
    pub id: ProcId,
    /// Pid of the process that stands for the whole: a worker itself, a container's init.
    pub root: i32,
    pub members: Members,
    /// Its network namespace, such as `/proc/PID/ns/net`; `None` when it shares
    /// the host's: network faults are then skipped.
    pub netns: Option<PathBuf>,
    /// Its address on the run's network.
    pub addr: Option<IpAddr>,
    /// TCP port that answers a connection, for probes: a node's service port.
    pub port: Option<u16>,
}

/// What can go wrong when processes are listed.
#[derive(Debug, thiserror::Error)]
pub enum ProcError {
    #[error("cannot read {path}: {source}")]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("process {0} is gone")]
    Gone(i32),
    #[error("process {0} shares our own pid namespace: name its group or tree instead")]
    OwnNamespace(i32),
}

impl Proc {
    /// All pids, ascending, zombies left out; empty when everything has exited.
    ///
    /// # Errors
    /// When `/proc` or the cgroup cannot be read, or the namespace is our own.
    pub fn pids(&self) -> Result<Vec<i32>, ProcError> {
        let found = match &self.members {
            Members::Group(pgid) => all()?
                .into_iter()
                .filter(|s| s.pgrp == *pgid)
                .map(|s| s.pid)
                .collect(),
            Members::Tree => tree(self.root)?,
            Members::PidNamespace => same_pid_namespace(self.root)?,
            Members::Cgroup(dir) => {
                let mut pids = BTreeSet::new();
                cgroup(dir, &mut pids)?;
                pids
            }
        };
        Ok(found
            .into_iter()
            .filter(|p| Stat::of(*p).is_some_and(|s| s.is_alive()))
            .collect())
    }

    /// Whether the root runs (a zombie does not).
    pub fn alive(&self) -> bool {
        Stat::of(self.root).is_some_and(|s| s.is_alive())
    }
}

/// A few fields of `/proc/PID/stat` (proc(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub pid: i32,
    /// `R S D T t Z X` …
    pub state: char,
    pub ppid: i32,
    pub pgrp: i32,
    /// Start time in clock ticks since boot: with the pid, names one process for good.
    pub start: u64,
}

impl Stat {
    /// `None` when there is no such process.
    pub fn of(pid: i32) -> Option<Stat> {
        Self::read(Path::new(&format!("/proc/{pid}/stat")))
    }

    fn read(path: &Path) -> Option<Stat> {
        Self::parse(&fs::read_to_string(path).ok()?)
    }

    /// The command name may hold spaces and parentheses: fields count from the last `)`.
    fn parse(text: &str) -> Option<Stat> {
        let open = text.find('(')?;
        let close = text.rfind(')')?;
        let rest: Vec<&str> = text.get(close + 1..)?.split_whitespace().collect();
        Some(Stat {
            pid: text.get(..open)?.trim().parse().ok()?,
            state: rest.first()?.chars().next()?,
            ppid: rest.get(1)?.parse().ok()?,
            pgrp: rest.get(2)?.parse().ok()?,
            start: rest.get(19)?.parse().ok()?,
        })
    }

    pub fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }

    /// Stopped by a signal.
    pub fn is_stopped(&self) -> bool {
        self.state == 'T'
    }
}

/// States of all threads of a process, `(tid, state)`; empty when it is gone.
pub fn thread_states(pid: i32) -> Vec<(i32, char)> {
    let Ok(dir) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let mut found: Vec<_> = dir
        .filter_map(|e| Stat::read(&e.ok()?.path().join("stat")))
        .map(|s| (s.pid, s.state))
        .collect();
    found.sort_unstable();
    found
}

fn all() -> Result<Vec<Stat>, ProcError> {
    let path = PathBuf::from("/proc");
    let dir = fs::read_dir(&path).map_err(|source| ProcError::Read { path, source })?;
    Ok(dir
        .filter_map(|e| {
            let pid: i32 = e.ok()?.file_name().to_str()?.parse().ok()?;
            Stat::of(pid)
        })
        .collect())
}

fn tree(root: i32) -> Result<BTreeSet<i32>, ProcError> {
    let all = all()?;
    let mut found = BTreeSet::new();
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        if found.insert(pid) {
            open.extend(all.iter().filter(|s| s.ppid == pid).map(|s| s.pid));
        }
    }
    Ok(found)
}

fn same_pid_namespace(root: i32) -> Result<BTreeSet<i32>, ProcError> {
    let ns = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid"));
    let Ok(want) = ns(&root.to_string()) else {
        return if Stat::of(root).is_some_and(|s| s.is_alive()) {
            Err(ProcError::Gone(root))
        } else {
            Ok(BTreeSet::new())
        };
    };
    if ns("self").is_ok_and(|own| own == want) {
        return Err(ProcError::OwnNamespace(root));
    }
    Ok(all()?
        .into_iter()
        .map(|s| s.pid)
        .filter(|p| ns(&p.to_string()).is_ok_and(|n| n == want))
        .collect())
}

fn cgroup(dir: &Path, pids: &mut BTreeSet<i32>) -> Result<(), ProcError> {
    let path = dir.join("cgroup.procs");
    let text = fs::read_to_string(&path).map_err(|source| ProcError::Read { path, source })?;
    pids.extend(text.lines().filter_map(|l| l.trim().parse::<i32>().ok()));
    let Ok(below) = fs::read_dir(dir) else {
        return Ok(());
    };
    for entry in below.flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            cgroup(&entry.path(), pids)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ids_go_there_and_back() {
        for s in ["node:0", "worker:12"] {
            assert_eq!(s.parse::<ProcId>().unwrap().to_string(), s);
        }
        for s in ["node", "node:", "worker:x", "host:1", "node:-1"] {
            assert!(s.parse::<ProcId>().is_err(), "{s}");
        }
    }

    #[test]
    fn stat_survives_odd_names() {
        let line = "42 (a) b (c) T 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 999 0 0";
        let s = Stat::parse(line).unwrap();
        assert_eq!(
            (s.pid, s.state, s.ppid, s.pgrp, s.start),
            (42, 'T', 1, 7, 999)
        );
        assert!(Stat::parse("42 (a").is_none());
        assert!(Stat::parse("").is_none());
    }

    #[test]
    fn own_pid_namespace_is_refused() {
        let me = Proc {
            id: ProcId::Worker(0),
            root: std::process::id().cast_signed(),
            members: Members::PidNamespace,
            netns: None,
            addr: None,
            port: None,
        };
        assert!(matches!(me.pids(), Err(ProcError::OwnNamespace(_))));
    }
}
