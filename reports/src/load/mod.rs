//! A run folder, read as far as it can be.

pub mod events;
pub mod meta;
pub mod store;
pub mod tale;
pub mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use fencepost_history::{Event, Process, names};

use crate::ReportError;
use crate::figures::Figures;
use crate::focus;
use crate::scan::Scan;
use crate::timeline::build::Builder;
use crate::timeline::{Focus, Timeline, lanes, store as placing};
use meta::Meta;
use store::StoreEntry;
use tale::Tale;
use verdict::Verdicts;

/// Evidence events shown per check, events shown in all, and events shown
/// around the story.
pub const MAX_EVIDENCE: usize = 24;
pub const MAX_SHOWN: usize = 400;
pub const MAX_CONTEXT: usize = 200;

/// Everything that panels are made of.
#[derive(Default)]
pub struct Run {
    pub meta: Meta,
    pub verdicts: Option<Verdicts>,
    pub scan: Scan,
    /// The story, when a check was violated.
    pub tale: Option<Tale>,
    pub focus: Option<Focus>,
    pub timeline: Timeline,
    pub figures: Figures,
    /// Events of the focused lock around the story that are no evidence.
    pub context: BTreeMap<u64, Event>,
    /// What is missing, torn or left out: one sentence each.
    pub notes: Vec<String>,
}

impl Run {
    /// Whether the event with this index is shown, so that a link to it resolves.
    pub fn shows(&self, index: u64) -> bool {
        self.scan.shown.contains_key(&index) || self.context.contains_key(&index)
    }

    /// Reads the folder: the history twice, the store's log once, never whole.
    pub fn load(folder: &Path) -> Result<Run, ReportError> {
        if !folder.is_dir() {
            return Err(ReportError::NotAFolder(folder.to_path_buf()));
        }
        let mut run = Run::default();
        if let Some((json, text)) = run.json(folder, "run.json") {
            let ordered = fencepost_history::json::parse_value(&text).unwrap_or_default();
            run.meta = Meta { json, ordered };
        }
        if let Some((file, _)) = run.json(folder, "verdict.json") {
            let (verdicts, unreadable) = Verdicts::from_json(&file);
            for name in unreadable {
                run.notes.push(format!(
                    "The answer of check {name} in verdict.json is unreadable."
                ));
            }
            for warning in file["warnings"].as_array().into_iter().flatten() {
                run.notes
                    .extend(warning.as_str().map(|w| format!("The checks warn: {w}.")));
            }
            run.verdicts = Some(verdicts);
        }
        let history = folder.join("history.jsonl");
        let mut scan = Scan::new(run.wanted());
        run.notes.extend(events::events(&history, |event| {
            scan.push(event);
            true
        }));
        scan.finish();
        run.scan = scan;
        let latency = run.json(folder, "latency.json").map(|(file, _)| file);
        run.figures = run.figures_from(latency.as_ref());
        let shown = |index: u64| run.scan.shown.get(&index);
        run.tale = run.verdicts.as_ref().and_then(|v| Tale::tell(v, shown));
        run.focus = focus::choose(&run);
        if let Some(focus) = run.focus.clone() {
            run.timeline = run.trace(folder, &focus)?;
        }
        run.note_status();
        Ok(run)
    }

    fn trace(&mut self, folder: &Path, focus: &Focus) -> Result<Timeline, ReportError> {
        let meta = self.meta.clone();
        let margin = |ttl| meta.margin_ns(ttl);
        let mut builder = Builder::new(focus, &margin);
        let told = focus.steps.iter().map(|(index, _)| *index);
        let (first, last) = (told.clone().min(), told.max());
        let in_story =
            |index: u64| first.is_some_and(|f| f <= index) && last.is_some_and(|l| index <= l);
        let mut context = BTreeMap::new();
        let _ = events::events(&folder.join("history.jsonl"), |event| {
            let go_on = builder.push(&event);
            let about = match &event.process {
                Process::Client(_) => event.key == focus.key,
                Process::Named(name) => {
                    &**name == names::NEMESIS || (event.key.is_some() && event.key == focus.key)
                }
            };
            let fresh = !self.scan.shown.contains_key(&event.index);
            if about && fresh && in_story(event.index) && context.len() < MAX_CONTEXT {
                context.insert(event.index, event);
            }
            go_on
        });
        self.context = context;
        let mut timeline = lanes::arrange(builder.finish(), focus);
        let key = focus.key.as_deref().unwrap_or("");
        let mut placer = placing::Placer::new(timeline.ops());
        let (found, odd) = events::lines(&folder.join("store.jsonl"), |text| {
            let entry = StoreEntry::parse(text)?;
            if entry.key == key {
                placer.push(&entry);
            }
            Some(true)
        })?;
        let marks = placer.finish();
        timeline.store_log = found;
        timeline.store = if found {
            marks
        } else {
            placing::from_answers(timeline.ops())
        };
        self.notes.extend(odd);
        Ok(timeline)
    }

    /// Indexes of the events that the checks point at, bounded per check and in all.
    fn wanted(&self) -> BTreeSet<u64> {
        let mut wanted = BTreeSet::new();
        let checks = self.verdicts.iter().flat_map(|v| &v.checks);
        for check in checks {
            let steps = check.result.story.iter().map(|s| s.index);
            let evidence = check.result.evidence.iter().copied();
            for index in steps.take(MAX_EVIDENCE).chain(evidence.take(MAX_EVIDENCE)) {
                if wanted.len() < MAX_SHOWN {
                    wanted.insert(index);
                }
            }
        }
        wanted
    }

    fn json(&mut self, folder: &Path, name: &str) -> Option<(serde_json::Value, String)> {
        let text = match std::fs::read_to_string(folder.join(name)) {
            Ok(text) => text,
            // Derived, and computed here when it is not there.
            Err(_) if name == "latency.json" => return None,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                self.notes
                    .push(format!("There is no {name} in this folder."));
                return None;
            }
            Err(e) => {
                self.notes.push(format!("{name} cannot be read: {e}."));
                return None;
            }
        };
        match serde_json::from_str(&text) {
            Ok(value) => Some((value, text)),
            Err(e) => {
                self.notes.push(format!("{name} is not valid JSON: {e}."));
                None
            }
        }
    }

    fn note_status(&mut self) {
        match self.meta.text("status") {
            Some("interrupted") => self.notes.push("The run was interrupted; what it recorded until then is judged.".into()),
            Some("running") => self.notes.push("run.json still says \"running\": the controller was stopped before the end of the run.".into()),
            _ => {}
        }
        if self.scan.events == 0 {
            self.notes.push("The history holds no events.".into());
        }
        if self.scan.faults.cut > 0 {
            let cut = self.scan.faults.cut;
            self.notes
                .push(format!("{cut} more faults are not listed."));
        }
    }
}
