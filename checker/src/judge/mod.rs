//! From a run folder to its verdict: a pure function of `run.json`,
//! `history.jsonl` and `store.jsonl`.

pub mod facts;

use std::path::Path;

use crate::verdict::VerdictFile;

/// Why a folder could not be judged at all. What is wrong inside a history is no
/// error here but the outcome `malformed`, beside what could be judged.
#[derive(Debug, thiserror::Error)]
pub enum JudgeError {
    #[error("cannot read {file}: {source}")]
    Read {
        file: String,
        source: std::io::Error,
    },
    #[error("run.json: {0}")]
    Facts(String),
}

/// Judges a run folder. Reads only; [`VerdictFile::to_json`] is the text of `verdict.json`.
///
/// # Errors
/// When `run.json` or `history.jsonl` is missing or unreadable.
pub fn judge(folder: &Path) -> Result<VerdictFile, JudgeError> {
    let _ = facts::read(folder)?;
    Err(JudgeError::Facts("not judged yet".to_owned()))
}
