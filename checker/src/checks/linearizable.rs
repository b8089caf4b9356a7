//! The lock's acquires and releases are linearizable by the model that fits what the service promises:
//! owner-aware, re-entrant, fenced, shared or semaphore. A leased lock has the fenced model whose leases
//! may expire; a leased lock without a fence has no model, since anything may have expired.
//!
//! The model's checker reads from a channel, on a thread of its own. Bounded by states, never by time, so
//! that the answer is the same on every machine.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use fencepost_history::{Event, Process, names};

use super::finding::{result, unknown};
use super::track::{Mode, Tracker};
use super::{Check, Cx, Entry, Results};
use crate::judge::facts::Facts;
use crate::verdict::{CheckResult, Step, Verdict};
use crate::{CheckError, Options, Outcome, Report, check_events};

pub const ENTRY: Entry = Entry {
    name: "linearizable",
    about: "acquires and releases fit the lock's model in some order",
    new: |facts| Box::new(Linearizable::new(facts)),
    live: None,
};

/// Events handed over at a time, and batches under way.
const BATCH: usize = 1024;
const UNDER_WAY: usize = 16;
/// Configurations that the general search may explore, a key.
const STATES: u64 = 2_000_000;
const MEMORY: u64 = 1 << 30;

type Answer = Result<Report, CheckError>;

struct Linearizable {
    engine: Option<(SyncSender<Vec<Event>>, JoinHandle<Answer>)>,
    batch: Vec<Event>,
    model: Result<String, &'static str>,
}

/// The model's name for [`check_events`], or why none fits.
pub fn model_of(facts: &Facts) -> Result<String, &'static str> {
    let s = &facts.system;
    let mode = facts.mode.as_deref().map(Mode::of).unwrap_or_default();
    // A hold that ends with its connection ends as a lease does: without a release.
    if s.lease || s.ends_with_connection {
        return match (s.fence, mode, s.reentrant) {
            (false, ..) => Err("not applicable: a hold may end unseen and has no fence"),
            (true, Mode::Exclusive, false) => Ok("fenced-mutex-leased".into()),
            _ => Err("not applicable: holds that end unseen have a model for exclusive locks only"),
        };
    }
    Ok(match (mode, s.reentrant, s.fence) {
        (Mode::Shared, ..) => "shared".into(),
        (Mode::Semaphore, ..) => {
            format!("weighted-semaphore:{}", facts.permits.unwrap_or(1).max(1))
        }
        (_, true, true) => "reentrant-fenced".into(),
        (_, true, false) => "reentrant".into(),
        (_, _, true) => "fenced-mutex".into(),
        _ => "owner-mutex".into(),
    })
}

impl Linearizable {
    fn new(facts: &Facts) -> Self {
        Linearizable {
            engine: None,
            batch: Vec::new(),
            model: model_of(facts),
        }
    }

    fn hand_over(&mut self) {
        let Ok(model) = &self.model else { return };
        let (to, _) = self.engine.get_or_insert_with(|| {
            let (to, from) = sync_channel(UNDER_WAY);
            let model = model.clone();
            (to, std::thread::spawn(move || engine(from, &model)))
        });
        // An engine that is gone has its answer already.
        let _ = to.send(std::mem::take(&mut self.batch));
    }
}

fn engine(from: Receiver<Vec<Event>>, model: &str) -> Answer {
    let options = Options {
        memory: MEMORY,
        max_states: Some(STATES),
        // `busy` may mean a lock-delay, a full queue, or a poll that missed: no proof that it was held.
        busy_counts: false,
        parallel: false,
        ..Options::default()
    };
    check_events(from.into_iter().flatten(), model, None, &options)
}

fn conclude(answer: Answer) -> CheckResult {
    let report = match answer {
        Ok(report) => report,
        Err(CheckError::DoesNotFit { .. }) => return unknown("no acquire or release to check"),
        Err(e) => return unknown(e.to_string()),
    };
    let operations = report.operations;
    match report.outcome {
        Outcome::Linearizable if operations == 0 => unknown("no acquire or release to check"),
        Outcome::Linearizable => {
            let why = format!("{operations} operations fit model {}", report.model);
            result(Verdict::Holds, why, operations)
        }
        Outcome::Unknown(spent) => {
            let reason = format!("{} after {} states", spent.reason, spent.states);
            result(Verdict::Unknown, reason, operations)
        }
        Outcome::Violated(why) => CheckResult {
            evidence: why.evidence.clone(),
            story: why
                .story
                .iter()
                .map(|s| Step {
                    index: s.index,
                    time: 0,
                    text: s.text.clone(),
                })
                .collect(),
            count: 1,
            ..result(
                Verdict::Violated,
                format!("model {}: {}", report.model, why.summary),
                operations,
            )
        },
    }
}

impl Check for Linearizable {
    fn event(&mut self, cx: &Cx<'_>) {
        let e = cx.event;
        let ours = matches!(e.process, Process::Client(_))
            && matches!(&*e.f, names::ACQUIRE | names::RELEASE);
        if !ours || self.model.is_err() {
            return;
        }
        self.batch.push(e.clone());
        if self.batch.len() >= BATCH {
            self.hand_over();
        }
    }

    fn finish(mut self: Box<Self>, _: &Facts, _: &Tracker, out: &mut Results) {
        if !self.batch.is_empty() {
            self.hand_over();
        }
        let answer = match (&self.model, self.engine.take()) {
            (Err(why), _) => unknown(*why),
            (Ok(_), None) => unknown("no acquire or release to check"),
            (Ok(_), Some((to, thread))) => {
                drop(to);
                match thread.join() {
                    Ok(answer) => conclude(answer),
                    Err(_) => unknown("the engine failed; please report this history"),
                }
            }
        };
        out.insert(ENTRY.name.into(), answer);
    }
}
