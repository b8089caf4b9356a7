//! What is to be started.

use std::{collections::BTreeMap, path::PathBuf};

use super::UnitId;

/// One server of a lock service, in words that hold on every host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSpec {
    /// Unique in the run; host name and name of the log file: `redis-0`.
    pub name: String,
    /// What it is to the service: `server`, `sentinel`, …; information for reports and targets.
    pub role: String,
    /// The recipe of its image (see `images`), used by the docker host unless the run names another.
    pub recipe: String,
    /// Looked up on PATH (local) or in the image (docker). `fencepost` is this very program.
    pub program: String,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// Written below the data directory before the first start, and again after a wipe.
    pub files: Vec<FileSpec>,
    /// A command run before each start in the same place, and its success awaited (`initdb`).
    /// Skipped if `unless` exists below the data directory.
    pub prepare: Option<Prepare>,
    pub run_as: RunAs,
    /// Absolute paths without which the program is of no use (a jar): looked for on the local host.
    pub needs: Vec<String>,
    /// The size of a tmpfs under the data directory: what a full disk is made of.
    pub tmpfs_bytes: Option<u64>,
}

impl NodeSpec {
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        recipe: impl Into<String>,
        program: impl Into<String>,
    ) -> Self {
        Self {
            name: name.into(),
            role: "server".into(),
            recipe: recipe.into(),
            program: program.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            files: Vec::new(),
            prepare: None,
            run_as: RunAs::Same,
            needs: Vec::new(),
            tmpfs_bytes: None,
        }
    }

    #[must_use]
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>, contents: impl Into<String>) -> Self {
        self.files.push(FileSpec {
            path: path.into(),
            contents: contents.into(),
        });
        self
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSpec {
    /// Relative to the node's data directory.
    pub path: PathBuf,
    pub contents: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepare {
    pub program: String,
    pub args: Vec<String>,
    /// Relative to the data directory.
    pub unless: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunAs {
    /// As the harness (or the image's root).
    Same,
    /// Never as root: some servers refuse it.
    Unprivileged,
}

/// What becomes of a node's data when it is started again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataFate {
    Kept,
    Wiped,
    /// As it was when [`super::Host::snapshot_node`] was called with this label.
    Snapshot(String),
}

/// A worker or the witness.
#[derive(Debug, Clone)]
pub struct ProcessSpec {
    pub id: UnitId,
    pub program: PathBuf,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
}
