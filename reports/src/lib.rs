//! Reports of a run folder: `report.html`, `summary.md`, `junit.xml`.
//!
//! Everything here is computed from the files of a run folder
//! (docs/history-format.md), so that a report can be made again, anywhere.

pub mod error;
pub mod figures;
pub mod focus;
pub mod junit;
pub mod load;
pub mod matrix;
pub mod page;
pub mod panels;
mod plot;
pub mod scan;
pub mod summary;
pub mod timeline;
pub mod toml;
pub mod words;

use std::path::Path;

pub use error::ReportError;

/// Writes `report.html`, `summary.md` and `junit.xml` into the run folder
/// `folder`, from its `run.json`, `history.jsonl`, `store.jsonl`, `verdict.json`
/// and `latency.json`.
///
/// A file that is missing or torn is said so in the report and is no error.
///
/// # Errors
/// Only when `folder` cannot be read at all, or a report cannot be written.
pub fn render(folder: &Path) -> Result<(), ReportError> {
    let run = load::Run::load(folder)?;
    write(folder, "report.html", &page::page(&run)?)?;
    write(folder, "summary.md", &summary::summary(&run)?)?;
    write(folder, "junit.xml", &junit::junit(&run)?)
}

fn write(folder: &Path, name: &str, text: &str) -> Result<(), ReportError> {
    let path = folder.join(name);
    std::fs::write(&path, text).map_err(|source| ReportError::Write { path, source })
}

/// Writes `matrix.html` beside the `matrix.json` of `folder`: services × faults,
/// each cell linked to its run's report.
///
/// # Errors
/// When `matrix.json` is missing or malformed, or the page cannot be written.
pub fn render_matrix(folder: &Path) -> Result<(), ReportError> {
    let path = folder.join("matrix.json");
    let text = std::fs::read_to_string(&path).map_err(|source| ReportError::Read {
        path: path.clone(),
        source,
    })?;
    let matrix = serde_json::from_str(&text).map_err(|e| ReportError::Malformed {
        path,
        line: e.line() as u64,
        reason: e.to_string(),
    })?;
    write(folder, "matrix.html", &matrix::page(&matrix)?)
}
