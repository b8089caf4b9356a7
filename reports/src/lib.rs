//! Reports of a run folder: `report.html`, `summary.md`, `junit.xml`.
//!
//! Everything here is computed from the files of a run folder
//! (docs/history-format.md), so that a report can be made again, anywhere.

pub mod error;

use std::path::Path;

pub use error::ReportError;

/// Writes `report.html`, `summary.md` and `junit.xml` into the run folder
/// `folder`, from `run.json`, `history.jsonl`, `store.jsonl` and `verdict.json`.
///
/// A file that is missing or torn is said so in the report and is no error.
///
/// # Errors
/// Only when `folder` cannot be read at all, or a report cannot be written.
pub fn render(folder: &Path) -> Result<(), ReportError> {
    if !folder.is_dir() {
        return Err(ReportError::NotAFolder(folder.to_path_buf()));
    }
    Ok(())
}

/// Writes `matrix.html` beside the `matrix.json` of `folder`: services × faults,
/// each cell linked to its run's report.
///
/// # Errors
/// When `matrix.json` is missing or malformed, or the page cannot be written.
pub fn render_matrix(folder: &Path) -> Result<(), ReportError> {
    if !folder.is_dir() {
        return Err(ReportError::NotAFolder(folder.to_path_buf()));
    }
    Ok(())
}
