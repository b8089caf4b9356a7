//! A note that a run is under way, so that what it leaves behind can be found when it is killed.
//!
//! One file a run in a directory of the user's own: the first line says who controls it, each further line
//! names a process that it started. Lines are only ever appended.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{HostError, HostKind, namespace::real_uid, proc};

/// Prefix of a run's directory for the data of local nodes.
pub const SCRATCH: &str = "fencepost-run-";

/// A process for good: pids are used again, start times are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Born {
    pub pid: i32,
    pub start: u64,
}

impl Born {
    /// None if there is no such process.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let start = proc::stat(pid)?.start;
        Some(Self { pid, start })
    }

    /// Whether that very process still lives.
    #[must_use]
    pub fn lives(self) -> bool {
        proc::alive(self.pid) && Self::of(self.pid) == Some(self)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub run_id: String,
    pub host: String,
    pub controller: Born,
    /// Data directories of local nodes.
    pub scratch: PathBuf,
}

/// What a file of the register says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub head: Head,
    pub children: Vec<Born>,
    pub file: PathBuf,
}

/// The entry of a run that is under way.
#[derive(Debug)]
pub struct Registration {
    path: PathBuf,
    file: File,
    pub(super) scratch: PathBuf,
}

impl Registration {
    /// # Errors
    /// When the directory is not the user's own, or cannot be written.
    pub fn create(run_id: &str, kind: HostKind) -> Result<Self, HostError> {
        let dir = directory()?;
        let scratch = std::env::temp_dir().join(format!("{SCRATCH}{run_id}"));
        let controller = Born::of(std::process::id() as i32).ok_or_else(|| HostError::Io {
            what: "/proc/self".into(),
            source: io::ErrorKind::NotFound.into(),
        })?;
        let head = Head {
            run_id: run_id.into(),
            host: kind.as_str().into(),
            controller,
            scratch: scratch.clone(),
        };
        let path = dir.join(format!("{run_id}.jsonl"));
        let file = File::options()
            .create_new(true)
            .append(true)
            .open(&path)
            .map_err(HostError::io(path.display()))?;
        let mut made = Self {
            path,
            file,
            scratch,
        };
        made.line(&head)?;
        fs::DirBuilder::new()
            .mode(0o711)
            .create(&made.scratch)
            .map_err(HostError::io(made.scratch.display()))?;
        Ok(made)
    }

    /// Notes a process that was started.
    pub fn child(&mut self, pid: i32) -> Result<(), HostError> {
        match Born::of(pid) {
            Some(born) => self.line(&born),
            None => Ok(()),
        }
    }

    fn line(&mut self, what: &impl Serialize) -> Result<(), HostError> {
        let mut text = serde_json::to_string(what).map_err(|e| HostError::Io {
            what: self.path.display().to_string(),
            source: e.into(),
        })?;
        text.push('\n');
        self.file
            .write_all(text.as_bytes())
            .map_err(HostError::io(self.path.display()))
    }

    /// Ends the entry: nothing of the run is left.
    pub fn remove(&self) -> Result<(), HostError> {
        for gone in [
            fs::remove_dir_all(&self.scratch),
            fs::remove_file(&self.path),
        ] {
            match gone {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(HostError::io(self.path.display())(e));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// `$XDG_RUNTIME_DIR/fencepost`, or `fencepost-UID` in the temporary directory; mode 0700 and the user's own.
pub fn directory() -> Result<PathBuf, HostError> {
    let uid = real_uid();
    let run = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let dir = match run.filter(|d| d.is_dir()) {
        Some(run) => run.join("fencepost"),
        None => PathBuf::from(format!("/tmp/fencepost-{uid}")),
    };
    if let Err(e) = fs::DirBuilder::new().mode(0o700).create(&dir)
        && e.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(HostError::io(dir.display())(e));
    }
    let meta = fs::symlink_metadata(&dir).map_err(HostError::io(dir.display()))?;
    if !meta.is_dir() || meta.uid() != nix::unistd::getuid().as_raw() || meta.mode() & 0o077 != 0 {
        return Err(HostError::Unavailable {
            what: dir.display().to_string(),
            reason: "not a directory of this user's own with mode 0700".into(),
            hint: "remove it, or set XDG_RUNTIME_DIR to a directory of your own".into(),
        });
    }
    Ok(dir)
}

/// Every readable entry; a torn last line is left out.
pub fn entries(dir: &Path) -> Vec<Entry> {
    let Ok(files) = fs::read_dir(dir) else {
        return Vec::new();
    };
    files.filter_map(|f| read(&f.ok()?.path())).collect()
}

fn read(path: &Path) -> Option<Entry> {
    let text = fs::read_to_string(path).ok()?;
    let mut lines = text.lines();
    let head = serde_json::from_str(lines.next()?).ok()?;
    let children = lines.filter_map(|l| serde_json::from_str(l).ok()).collect();
    Some(Entry {
        head,
        children,
        file: path.into(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_entry_is_read_back_and_a_torn_line_does_no_harm() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("r1.jsonl");
        let me = Born::of(std::process::id() as i32).unwrap();
        let head = Head {
            run_id: "r1".into(),
            host: "local".into(),
            controller: me,
            scratch: "/nowhere".into(),
        };
        let (h, c) = (
            serde_json::to_string(&head).unwrap(),
            serde_json::to_string(&me).unwrap(),
        );
        fs::write(&path, format!("{h}\n{c}\n{{\"pid\":1")).unwrap();
        let all = entries(tmp.path());
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].head, head);
        assert_eq!(all[0].children, vec![me]);
    }

    #[test]
    fn a_pid_with_another_start_time_is_somebody_else() {
        let me = Born::of(std::process::id() as i32).unwrap();
        assert!(me.lives());
        let other = Born {
            start: me.start + 1,
            ..me
        };
        assert!(!other.lives());
    }
}
