//! Cleaning up after controllers that were killed. What a run owns is found by the register, by its id in labels and names,
//! and by its mark in the environment of processes: nothing else is ever touched, and nothing of a run
//! whose controller lives.

use std::{
    fs, io,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use serde::Serialize;
use tokio::process::Command;

use crate::{
    host::{
        HostError, docker, proc,
        register::{self, Entry},
        spawn::{self, RUN_VAR},
    },
    images,
};

const KILL_WITHIN: Duration = Duration::from_secs(5);

/// Once an engine has shown nothing of a run for so long, nothing more comes.
const SETTLED: Duration = Duration::from_secs(2);

/// What was found and removed.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct Healed {
    /// Runs whose controller was gone and of which nothing is left now.
    pub runs: Vec<String>,
    pub processes: usize,
    pub containers: usize,
    pub networks: usize,
    pub interfaces: usize,
    pub nft_tables: usize,
    /// Runs whose controller lives: not touched.
    pub alive: Vec<String>,
    /// What could not be removed, and why.
    pub failed: Vec<String>,
}

/// Removes what is left of every run of this user whose controller is gone.
///
/// # Errors
/// When the register cannot be read. What fails for one run is in [`Healed::failed`].
pub async fn heal() -> Result<Healed, HostError> {
    let mut healed = Healed::default();
    for entry in register::entries(&register::directory()?) {
        let id = entry.head.run_id.clone();
        if entry.head.controller.lives() {
            healed.alive.push(id);
            continue;
        }
        match heal_run(&entry, &mut healed).await {
            Ok(()) => healed.runs.push(id),
            Err(e) => healed.failed.push(format!("run {id}: {e}")),
        }
    }
    Ok(healed)
}

/// As [`heal`], and also the containers of image builds that were interrupted. Asks the engine, if one answers.
///
/// # Errors
/// As [`heal`].
pub async fn heal_all() -> Result<Healed, HostError> {
    let mut healed = heal().await?;
    if let Ok(engine) = docker::engine().await {
        healed.containers += images::remove_leftovers(&engine).await;
    }
    Ok(healed)
}

async fn heal_run(entry: &Entry, healed: &mut Healed) -> Result<(), HostError> {
    let id = &entry.head.run_id;
    let mut left = Vec::new();
    // Children of its children outlive it, and what is in a container. Neither way of finding them is
    // enough: some servers write their title over their environment, others leave their session.
    for child in entry.children.iter().filter(|c| c.lives()) {
        healed.processes += 1;
        left.extend(spawn::kill_all(child.pid, KILL_WITHIN).await);
    }
    for pid in proc::with_env(RUN_VAR, id) {
        healed.processes += 1;
        left.extend(spawn::kill_all(pid, KILL_WITHIN).await);
    }
    if !left.is_empty() {
        return Err(HostError::Io {
            what: format!("processes {left:?}"),
            source: io::Error::other("they ignore SIGKILL"),
        });
    }
    if entry.head.host == "docker" {
        let engine = docker::engine().await?;
        let mut found = Instant::now();
        // The engine finishes what it was asked for although nobody waits for it any more.
        while found.elapsed() < SETTLED {
            let removed = docker::remove_run(&engine, id).await?;
            if removed.containers + removed.networks > 0 {
                found = Instant::now();
            }
            healed.containers += removed.containers;
            healed.networks += removed.networks;
            tokio::time::sleep(SETTLED / 8).await;
        }
        healed.interfaces += docker::remove_interfaces(id).await?;
    }
    healed.nft_tables += remove_tables(id).await;
    remove_scratch(&entry.head.scratch, id)?;
    match fs::remove_file(&entry.file) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(HostError::io(entry.file.display())(e))
        }
        _ => Ok(()),
    }
}

/// The path comes from a file: it is removed only if it is what a run would have made.
fn remove_scratch(scratch: &Path, run_id: &str) -> Result<(), HostError> {
    let named = scratch.file_name().and_then(|n| n.to_str());
    let ours = named.and_then(|n| n.strip_prefix(register::SCRATCH)) == Some(run_id);
    let real = fs::symlink_metadata(scratch).is_ok_and(|m| m.is_dir());
    if ours && real {
        fs::remove_dir_all(scratch).map_err(HostError::io(scratch.display()))?;
    }
    Ok(())
}

/// Tables of this run in this namespace. Those in the namespaces of units are gone with them; a fault
/// that had to act here names its table `fencepost_RUN_…`.
async fn remove_tables(run_id: &str) -> usize {
    let Some(nft) = spawn::find_program("nft") else {
        return 0;
    };
    let list = Command::new(&nft)
        .args(["list", "tables"])
        .stderr(Stdio::null())
        .output()
        .await;
    let Ok(list) = list else { return 0 };
    let mut removed = 0;
    for (family, name) in tables_of(&String::from_utf8_lossy(&list.stdout), run_id) {
        let delete = Command::new(&nft)
            .args(["delete", "table", &family, &name])
            .status()
            .await;
        removed += usize::from(delete.is_ok_and(|s| s.success()));
    }
    removed
}

/// Lines are `table FAMILY NAME`.
fn tables_of(list: &str, run_id: &str) -> Vec<(String, String)> {
    let mine = format!("fencepost_{run_id}_");
    list.lines()
        .filter_map(|l| {
            let mut words = l.split_ascii_whitespace();
            let (_, family, name) = (words.next()?, words.next()?, words.next()?);
            format!("{name}_")
                .starts_with(&mine)
                .then(|| (family.into(), name.into()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_the_runs_own_tables_are_chosen() {
        let list = "table inet filter\ntable ip fencepost_ab12_f1\ntable inet fencepost_ab12\n\
                    table ip fencepost_ab123_f1\ntable ip xfencepost_ab12_f1\n";
        let names: Vec<String> = tables_of(list, "ab12").into_iter().map(|t| t.1).collect();
        assert_eq!(names, ["fencepost_ab12_f1", "fencepost_ab12"]);
    }

    #[test]
    fn a_scratch_path_of_another_shape_is_left_alone() {
        let tmp = tempfile::tempdir().unwrap();
        let other = tmp.path().join("precious");
        fs::create_dir(&other).unwrap();
        remove_scratch(&other, "r1").unwrap();
        assert!(other.exists());
        let mine = tmp.path().join("fencepost-run-r1");
        fs::create_dir(&mine).unwrap();
        remove_scratch(&mine, "r2").unwrap();
        assert!(mine.exists());
        remove_scratch(&mine, "r1").unwrap();
        assert!(!mine.exists());
    }
}
