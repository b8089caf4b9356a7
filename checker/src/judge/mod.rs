//! From a run folder to its verdict: a pure function of `run.json`,
//! `history.jsonl` and `store.jsonl`.

pub mod facts;
mod live;
mod outcome;
mod store_log;

use std::io;
use std::path::{Path, PathBuf};

use fencepost_history::pairs::Sequence;
use fencepost_history::{Event, ReadError, Reader, Warning, read_path};

use crate::checks::{Lineup, Results, applied};
use crate::verdict::VerdictFile;
use facts::Facts;
pub use live::{Certain, Live};
use outcome::Circumstances;
use store_log::LogEnd;

/// Why a folder could not be judged at all. What is wrong inside a history is no
/// error here but the outcome `malformed`, beside what could be judged.
#[derive(Debug, thiserror::Error)]
pub enum JudgeError {
    #[error("cannot read {file}: {source}")]
    Read { file: String, source: io::Error },
    #[error("run.json: {0}")]
    Facts(String),
}

/// Judges a run folder. Reads only; [`VerdictFile::to_json`] is the text of `verdict.json`.
///
/// # Errors
/// When `run.json` is missing or malformed, or a file is unreadable.
pub fn judge(folder: &Path) -> Result<VerdictFile, JudgeError> {
    let facts = facts::read(folder)?;
    let mut run = Judging::new(&facts, folder)?;
    let history = history_of(folder);
    match run.stream(&history) {
        Err(Stop::Read(ReadError::Io { source, .. }))
            if source.kind() == io::ErrorKind::NotFound =>
        {
            run.warnings.push("history.jsonl is missing".into());
            run.cut = true;
        }
        Err(Stop::Read(ReadError::Io { source, .. })) => {
            return Err(JudgeError::Read {
                file: "history.jsonl".into(),
                source,
            });
        }
        // Out of order, or it looks malformed because it is.
        Err(Stop::Read(ReadError::OutOfOrder { .. }) | Stop::Sequence) => {
            run = Judging::sorted(&facts, folder, &history)?;
        }
        Err(Stop::Read(e)) => run.stop(&e),
        Ok(()) => {}
    }
    run.finish(&facts, folder)
}

/// Why the streaming of a history ended early.
enum Stop {
    Read(ReadError),
    Sequence,
}

fn history_of(folder: &Path) -> PathBuf {
    ["history.jsonl", "history.jsonl.gz", "history.jsonl.zst"]
        .iter()
        .map(|n| folder.join(n))
        .find(|p| p.exists())
        .unwrap_or_else(|| folder.join("history.jsonl"))
}

/// One folder on its way through the checks.
struct Judging {
    lineup: Lineup,
    sequence: Sequence,
    events: u64,
    warnings: Vec<String>,
    malformed: Option<String>,
    /// The history was not judged to its end: what the store's log has beyond it proves nothing.
    cut: bool,
    log: LogEnd,
}

impl Judging {
    fn new(facts: &Facts, folder: &Path) -> Result<Judging, JudgeError> {
        let mut lineup = Lineup::new(facts);
        let log = store_log::each(folder, |op| lineup.store(op)).map_err(of_store)?;
        Ok(Judging {
            lineup,
            sequence: Sequence::default(),
            events: 0,
            warnings: Vec::new(),
            malformed: None,
            cut: false,
            log,
        })
    }

    fn event(&mut self, event: &Event, line: u64) -> Result<(), ReadError> {
        self.sequence.check(event, line)?;
        self.lineup.event(event);
        self.events += 1;
        Ok(())
    }

    fn stop(&mut self, e: &ReadError) {
        self.malformed = Some(format!("history.jsonl, {e}"));
        self.cut = true;
    }

    fn stream(&mut self, path: &Path) -> Result<(), Stop> {
        let mut reader = Reader::open(path).map_err(Stop::Read)?;
        let mut result = Ok(());
        while let (Ok(()), Some(next)) = (&result, reader.next()) {
            result = match next {
                Ok(r) => self.event(&r.event, r.line).map_err(|_| Stop::Sequence),
                Err(e) => Err(Stop::Read(e)),
            };
        }
        self.warn(reader.warnings());
        result
    }

    fn warn(&mut self, warnings: &[Warning]) {
        let said = warnings.iter().map(|w| format!("history.jsonl, {w}"));
        self.warnings.extend(said);
    }

    /// Reads all events, sorts them by index, and judges as far as they make sense.
    fn sorted(facts: &Facts, folder: &Path, path: &Path) -> Result<Judging, JudgeError> {
        let mut run = Judging::new(facts, folder)?;
        let history = match read_path(path) {
            Ok(history) => history,
            Err(e) => {
                run.stop(&e);
                return Ok(run);
            }
        };
        run.warn(&history.warnings);
        if !history.lines.is_sorted() {
            run.warnings
                .push("history.jsonl is not in the order of index; it was sorted".into());
        }
        for (event, line) in history.events.iter().zip(&history.lines) {
            if let Err(e) = run.event(event, *line) {
                run.stop(&e);
                break;
            }
        }
        Ok(run)
    }

    fn finish(mut self, facts: &Facts, folder: &Path) -> Result<VerdictFile, JudgeError> {
        let lineup = &mut self.lineup;
        if !self.cut {
            store_log::each(folder, |op| lineup.store_again(op)).map_err(of_store)?;
        }
        if self.log.torn {
            self.warnings
                .push("store.jsonl: the last line is torn and was left out".into());
        }
        let (_, not_applied) = applied(&self.lineup.tracker().faults, facts.faults_planned);
        let around = Circumstances {
            malformed: self.malformed.or(self.log.malformed),
            not_applied,
        };
        let mut checks: Results = self.lineup.finish();
        outcome::expect(facts, &mut checks);
        let (outcome, reason) = outcome::decide(facts, &checks, &around);
        Ok(VerdictFile {
            format: 1,
            outcome,
            exit_code: outcome.exit_code(),
            reason,
            checks,
            warnings: self.warnings,
            events: self.events,
        })
    }
}

fn of_store(source: io::Error) -> JudgeError {
    JudgeError::Read {
        file: "store.jsonl".into(),
        source,
    }
}
