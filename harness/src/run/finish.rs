//! The end of a run: final state, store's log, verdict, report.

use std::fs;
use std::io::Write;
use std::time::Duration;

use fencepost_history::{EventType, Process, Value, names};
use fencepost_workloads::protocol::Item;
use fencepost_workloads::stores::StoreAdmin;

use super::core::Ending;
use super::setup::Stage;
use super::{Options, Report, RunError, events};
use crate::record::{Draft, RecordError, Recorder, RunFolder, Status};

/// Longest time that one final read may take.
const READ: Duration = Duration::from_secs(5);

/// Reads what is left, stops everything, judges and reports.
///
/// # Errors
/// When the folder cannot be judged at all.
pub async fn finish(
    mut stage: Stage,
    mut ending: Ending,
    options: &Options,
) -> Result<Report, RunError> {
    let mut warnings = Vec::new();
    if let Some(check) = ending.stopped_by {
        let text = format!("the run was ended before its time (fail_fast): {check} is violated");
        warnings.push(text);
    }
    ending.recorder.record(events::phase("final"));
    if let Err(e) = final_state(&stage, options, &mut ending).await {
        warnings.push(e);
    }
    ending.recorder.record(events::phase("end"));
    if let Err(e) = close(&mut ending.recorder) {
        ending.failure.get_or_insert(e.to_string());
    }
    let figures = ending.figures;
    stage.file.achieved_rate = Some(figures.achieved());
    stage.file.versions.extend(
        ending
            .names
            .iter()
            .enumerate()
            .map(|(n, name)| (format!("worker:{n}"), name.clone())),
    );
    stage.file.failure = ending.failure.clone();
    let status = match (&ending.failure, ending.interrupted) {
        (Some(_), _) => Status::Failed,
        (None, true) => Status::Interrupted,
        (None, false) => Status::Complete,
    };
    stage.close(status).await;
    let latency =
        serde_json::to_vec_pretty(&figures.to_json(options.scenario.load.rate)).unwrap_or_default();
    note(
        &mut warnings,
        "latency.json",
        fs::write(stage.folder.file("latency.json"), latency),
    );
    let verdict = judge(&stage.folder)?;
    note(
        &mut warnings,
        "verdict.json",
        fs::write(stage.folder.file("verdict.json"), verdict.to_json()),
    );
    note(
        &mut warnings,
        "report",
        fencepost_reports::render(&stage.folder.dir),
    );
    Ok(Report {
        dir: stage.folder.dir.clone(),
        verdict,
        figures,
        target_rate: options.scenario.load.rate,
        warnings,
        undemanded: options.undemanded.clone(),
        failure: ending.failure,
    })
}

fn note<E: std::fmt::Display>(warnings: &mut Vec<String>, what: &str, result: Result<(), E>) {
    if let Err(e) = result {
        warnings.push(format!("{what}: {e}"));
    }
}

fn close(recorder: &mut Recorder) -> Result<(), RecordError> {
    recorder.close()
}

/// Judges a run folder.
///
/// # Errors
/// When it holds no run.
fn judge(folder: &RunFolder) -> Result<fencepost_checker::verdict::VerdictFile, RunError> {
    fencepost_checker::judge::judge(&folder.dir).map_err(|e| RunError::Judge {
        dir: folder.dir.display().to_string(),
        cause: e.to_string(),
    })
}

/// Records what every register and set holds at the end, and fetches the store's log.
async fn final_state(stage: &Stage, options: &Options, ending: &mut Ending) -> Result<(), String> {
    if stage.store.kind == "none" {
        return Ok(());
    }
    let admin = stage.store_admin(READ).map_err(|e| e.to_string())?;
    let story = &options.scenario.story.lock;
    let story = (!story.is_empty()).then(|| story.as_str().into());
    for key in stage.board.locks().iter().cloned().chain(story) {
        let process = Process::Client(ending.next_process);
        ending.next_process += 1;
        let read = |kind, value, error: Option<String>| Draft {
            process: process.clone(),
            kind,
            f: names::READ.into(),
            key: Some(key.clone()),
            value,
            error: error.map(Into::into),
        };
        let asked = Value::Map(vec![("final".into(), Value::Bool(true))]);
        ending.recorder.record(read(EventType::Invoke, asked, None));
        let draft = match admin.final_state(&key).await {
            Ok(state) => {
                let set = state
                    .set
                    .iter()
                    .map(|i| Item::to_history(Some(i)))
                    .collect();
                let value = Item::to_history(state.value.as_ref());
                let value = Value::Map(vec![
                    ("value".into(), value),
                    ("set".into(), Value::List(set)),
                ]);
                read(EventType::Ok, value, None)
            }
            Err(e) => read(EventType::Info, Value::Null, Some(e.to_string())),
        };
        ending.recorder.record(draft);
    }
    export_log(stage, admin.as_ref()).await
}

async fn export_log(stage: &Stage, admin: &dyn StoreAdmin) -> Result<(), String> {
    let lines = admin
        .export_log()
        .await
        .map_err(|e| format!("the store's log: {e}"))?;
    let Some(lines) = lines else { return Ok(()) };
    let path = stage.folder.file("store.jsonl");
    let write = || -> std::io::Result<()> {
        let mut out = std::io::BufWriter::new(fs::File::create(&path)?);
        for line in lines {
            writeln!(out, "{line}")?;
        }
        out.flush()
    };
    write().map_err(|e| format!("store.jsonl: {e}"))
}
