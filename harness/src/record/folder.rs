//! The folder of one run.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

#[derive(Debug, Error)]
pub enum FolderError {
    #[error("{path} already holds a run; name another folder with --out")]
    Taken { path: String },
    #[error("cannot create the run folder {path}: {cause}")]
    Create { path: String, cause: io::Error },
}

/// Paths of a run's files (docs/history-format.md).
#[derive(Clone, Debug)]
pub struct RunFolder {
    pub dir: PathBuf,
}

impl RunFolder {
    /// Creates the folder that `--out` names.
    ///
    /// # Errors
    /// When it already holds a run, or cannot be created.
    pub fn at(dir: &Path) -> Result<Self, FolderError> {
        let path = dir.display().to_string();
        if dir.join("run.json").exists() || dir.join("history.jsonl").exists() {
            return Err(FolderError::Taken { path });
        }
        fs::create_dir_all(dir.join("logs")).map_err(|cause| FolderError::Create {
            path: path.clone(),
            cause,
        })?;
        let dir = dir
            .canonicalize()
            .map_err(|cause| FolderError::Create { path, cause })?;
        Ok(RunFolder { dir })
    }

    /// Creates a new folder below `runs` and points the link `latest` at it.
    ///
    /// # Errors
    /// As [`at`](Self::at). A link that cannot be made is no error.
    pub fn fresh(runs: &Path, name: &str, run_id: &str) -> Result<Self, FolderError> {
        let leaf = format!("{name}-{run_id}");
        let folder = Self::at(&runs.join(&leaf))?;
        let staged = runs.join(format!(".latest-{run_id}"));
        if std::os::unix::fs::symlink(&leaf, &staged).is_ok()
            && fs::rename(&staged, runs.join("latest")).is_err()
        {
            let _ = fs::remove_file(&staged);
        }
        Ok(folder)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn log(&self, name: &str) -> PathBuf {
        self.dir.join("logs").join(format!("{name}.log"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn latest_points_at_the_newest_run() {
        let dir = tempfile::tempdir().unwrap();
        for id in ["a1", "b2"] {
            let folder = RunFolder::fresh(dir.path(), "pause", id).unwrap();
            fs::write(folder.file("run.json"), "{}").unwrap();
        }
        let latest = fs::read_link(dir.path().join("latest")).unwrap();
        assert_eq!(latest, Path::new("pause-b2"));
        assert!(dir.path().join("latest/logs").is_dir());
    }

    #[test]
    fn a_folder_with_a_run_in_it_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let folder = RunFolder::at(&out).unwrap();
        fs::write(folder.file("history.jsonl"), "").unwrap();
        let error = RunFolder::at(&out).unwrap_err().to_string();
        assert!(error.contains("already holds a run"), "{error}");
    }
}
