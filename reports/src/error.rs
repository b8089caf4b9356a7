//! What can keep a report from being written.

use std::path::PathBuf;

/// Why a report could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("{} is not a run folder: give the folder that holds history.jsonl", .0.display())]
    NotAFolder(PathBuf),
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{} line {line}: {reason}", .path.display())]
    Malformed {
        path: PathBuf,
        line: u64,
        reason: String,
    },
    #[error("cannot fill in a template: {0}")]
    Template(#[from] askama::Error),
    #[error("cannot lay out {what}: {reason}")]
    Layout { what: &'static str, reason: String },
}
