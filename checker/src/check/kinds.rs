//! Each built-in model: its decoder, its specification, its near-linear checker.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use fencepost_history::Value;
use rayon::prelude::*;

use super::Feed;
use super::decide::{Decided, Decision, FastFn, Task};
use crate::explain::tell::{Elements, Locks, Registers, Strings, Tell, TellState, Txns};
use crate::explain::{self};
use crate::fast::{cores, counting, fenced, fenced_register, reentrant, zones};
use crate::kind::ModelKind;
use crate::model::Model;
use crate::models::collections::{Queue, QueueFamily, Set, SetFamily, contents};
use crate::models::kv::{Kv, KvFamily, text};
use crate::models::lock::{LockFamily, LockOp, LockView};
use crate::models::locks::{Counting, FencedMutex, Owned, Reentrant, ReentrantFenced};
use crate::models::multi::MultiFamily;
use crate::models::register::{FencedRegister, RegFamily, RegOp, RegView, Register};
use crate::models::values::show;
use crate::ops::Timed;
use crate::options::{CheckError, Options, Outcome, Report, Spent};
use crate::pair::{Family, Keyed, Pairing};

/// Operations of a caller's own model, in their debug form.
pub(super) struct Debugged;

impl<O: std::fmt::Debug> Tell<O> for Debugged {
    fn call(&self, op: &O) -> String {
        format!("{op:?}")
    }
    fn answer(&self, _: &O) -> String {
        "returned".into()
    }
}

impl<S: std::fmt::Debug> TellState<S> for Debugged {
    fn state(&self, state: &S) -> serde_json::Value {
        format!("{state:?}").into()
    }
}

pub(super) fn outcome<O>(
    decision: Decision,
    ops: &[Timed<O>],
    key: Option<&str>,
    tell: &dyn Tell<O>,
    index: &dyn Fn(u64) -> u64,
) -> Outcome {
    match decision {
        Decision::Linearizable => Outcome::Linearizable,
        Decision::Violated(e) => {
            Outcome::Violated(Box::new(explain::explain(&e, ops, key, tell, index)))
        }
        Decision::Unknown(s) => Outcome::Unknown(Spent {
            key: key.map(str::to_string),
            prefix: s.prefix.map(index),
            ..s
        }),
    }
}

pub(super) struct Job<'a> {
    pub name: &'a str,
    pub options: &'a Options,
    pub started: Instant,
    pub index: &'a dyn Fn(u64) -> u64,
}

/// Paired operations, and what pairing noticed.
struct Paired<F: Family> {
    family: F,
    parts: Vec<Keyed<F::Op>>,
    unknown: u64,
    notes: Vec<String>,
}

type Run = Result<Report, CheckError>;

type Each = Option<Result<Decided, super::decide::Disagreement>>;

/// Results of `one` for 0..n, on all cores.
fn each(n: usize, parallel: bool, one: &(dyn Fn(usize) -> Each + Sync)) -> Vec<Each> {
    match parallel && n > 1 {
        true => (0..n).into_par_iter().map(one).collect(),
        false => (0..n).map(one).collect(),
    }
}

impl Job<'_> {
    pub fn run(&self, kind: ModelKind, feed: Feed, initial: &Value) -> Run {
        match kind {
            ModelKind::Register | ModelKind::CasRegister | ModelKind::FencedRegister { .. } => {
                self.register(kind, feed, initial)
            }
            ModelKind::Kv => self.kv(feed, initial),
            ModelKind::MultiRegister => {
                let (family, model) = MultiFamily::new(initial);
                let p = self.pair(family, feed, false)?;
                let tell = Txns {
                    values: p.family.values,
                    registers: p.family.registers,
                };
                self.judge(&model, &p.parts, None, &tell, p.unknown, p.notes)
            }
            ModelKind::Queue => {
                let mut family = QueueFamily::default();
                let initial = contents(&mut family.values, initial)
                    .ok_or_else(|| self.bad_initial(initial))?;
                let p = self.pair(family, feed, self.options.partition)?;
                self.judge(
                    &Queue { initial },
                    &p.parts,
                    None,
                    &Elements(p.family.values),
                    p.unknown,
                    p.notes,
                )
            }
            ModelKind::Set => {
                let mut family = SetFamily::default();
                let initial = contents(&mut family.values, initial)
                    .ok_or_else(|| self.bad_initial(initial))?;
                let p = self.pair(family, feed, self.options.partition)?;
                self.judge(
                    &Set { initial },
                    &p.parts,
                    None,
                    &Elements(p.family.values),
                    p.unknown,
                    p.notes,
                )
            }
            _ => self.lock(kind, feed),
        }
    }

    /// The time was up before the history was read.
    pub fn late(&self) -> Report {
        let spent = Spent {
            reason: CheckError::Late.to_string(),
            millis: self.started.elapsed().as_millis() as u64,
            ..Spent::default()
        };
        Report {
            outcome: Outcome::Unknown(spent),
            model: self.name.to_string(),
            decided_by: "none",
            operations: 0,
            unknown: 0,
            keys: 0,
            notes: Vec::new(),
            millis: 0.0,
        }
    }

    fn bad_initial(&self, value: &Value) -> CheckError {
        CheckError::BadInitial(show(value), self.name.to_string())
    }

    fn pair<F: Family>(
        &self,
        family: F,
        feed: Feed,
        partition: bool,
    ) -> Result<Paired<F>, CheckError> {
        let mut pairing = Pairing::new(family, partition);
        // A near-linear checker takes about as long as reading.
        let limit = self.options.limit.map(|l| self.started + l / 2);
        let mut fed = 0u32;
        feed(&mut |event, stamp| {
            fed = fed.wrapping_add(1);
            if fed.is_multiple_of(4096) && limit.is_some_and(|l| Instant::now() >= l) {
                return Err(CheckError::Late);
            }
            pairing.push(event, stamp)
        })?;
        let parts = pairing.finish();
        if parts.is_empty() && !pairing.unfit.is_empty() {
            let seen: Vec<String> = pairing.unfit.into_iter().collect();
            return Err(CheckError::DoesNotFit {
                model: self.name.to_string(),
                seen: seen.join(", "),
            });
        }
        let silent = pairing.silent;
        let note = format!("{silent} keys, at which every operation failed, say nothing");
        Ok(Paired {
            family: pairing.family,
            parts,
            unknown: pairing.unknown,
            notes: Some(note).filter(|_| silent > 0).into_iter().collect(),
        })
    }

    fn lock(&self, kind: ModelKind, feed: Feed) -> Run {
        let leased = kind == ModelKind::FencedMutexLeased;
        let view = LockView {
            owners: !matches!(kind, ModelKind::Mutex | ModelKind::Semaphore { .. }),
            fences: matches!(
                kind,
                ModelKind::FencedMutex
                    | ModelKind::FencedMutexLeased
                    | ModelKind::ReentrantFenced { .. }
            ),
            named_releases: matches!(kind, ModelKind::FencedMutex | ModelKind::FencedMutexLeased),
            exclusive: if kind == ModelKind::Shared {
                u32::MAX
            } else {
                1
            },
            shared: (kind == ModelKind::Shared).then_some(1),
            weights: matches!(kind, ModelKind::WeightedSemaphore { .. }),
            busy_counts: self.options.busy_counts && !leased,
        };
        let p = self.pair(LockFamily::new(view), feed, self.options.partition)?;
        let tell = Locks(p.family.names());
        let mut notes = p.notes;
        if !view.owners {
            notes.push("the model knows no owner: a grant that an unknown release can explain is no violation to it".to_string());
        } else if p.family.ownerless > 0 {
            notes.push(format!(
                "{} grants name no owner: the process stands for it",
                p.family.ownerless
            ));
        }
        let (parts, unknown) = (&p.parts, p.unknown);
        match kind {
            ModelKind::Semaphore { permits } => {
                let fast = |ops: &[Timed<LockOp>]| counting::check(ops, permits);
                self.judge(
                    &Counting { permits },
                    parts,
                    Some(&fast),
                    &tell,
                    unknown,
                    notes,
                )
            }
            ModelKind::Reentrant { limit } => {
                let fast =
                    |ops: &[Timed<LockOp>]| reentrant::check(ops, limit, reentrant::Fences::None);
                self.judge(
                    &Reentrant { limit },
                    parts,
                    Some(&fast),
                    &tell,
                    unknown,
                    notes,
                )
            }
            ModelKind::ReentrantFenced { raise } => {
                let fences = if raise {
                    reentrant::Fences::Raise
                } else {
                    reentrant::Fences::Keep
                };
                let fast = |ops: &[Timed<LockOp>]| reentrant::check(ops, u32::MAX, fences);
                self.judge(
                    &ReentrantFenced { raise },
                    parts,
                    Some(&fast),
                    &tell,
                    unknown,
                    notes,
                )
            }
            ModelKind::FencedMutex | ModelKind::FencedMutexLeased => {
                let fast = |ops: &[Timed<LockOp>]| fenced::check(ops, leased);
                self.judge(
                    &FencedMutex { leased },
                    parts,
                    Some(&fast),
                    &tell,
                    unknown,
                    notes,
                )
            }
            ModelKind::OwnerMutex | ModelKind::Shared | ModelKind::WeightedSemaphore { .. } => {
                let capacity = match kind {
                    ModelKind::WeightedSemaphore { permits } => permits,
                    _ => view.exclusive,
                };
                let fast = |ops: &[Timed<LockOp>]| cores::check(ops, capacity);
                self.judge(
                    &Owned { capacity },
                    parts,
                    Some(&fast),
                    &tell,
                    unknown,
                    notes,
                )
            }
            _ => {
                let fast = |ops: &[Timed<LockOp>]| counting::check(ops, 1);
                self.judge(
                    &Counting { permits: 1 },
                    parts,
                    Some(&fast),
                    &tell,
                    unknown,
                    notes,
                )
            }
        }
    }

    fn register(&self, kind: ModelKind, feed: Feed, initial: &Value) -> Run {
        let raise = kind == ModelKind::FencedRegister { raise: true };
        let view = RegView {
            cas: kind == ModelKind::CasRegister,
            fences: matches!(kind, ModelKind::FencedRegister { .. }),
            raise,
        };
        let mut p = self.pair(RegFamily::new(view, initial), feed, self.options.partition)?;
        let mut notes = std::mem::take(&mut p.notes);
        for part in &mut p.parts {
            p.family.drop_empty_answers(&mut part.ops, &mut notes);
        }
        let initial = p.family.initial;
        let tell = Registers {
            values: p.family.values,
            fences: view.fences,
        };
        if view.fences {
            let fast = |ops: &[Timed<RegOp>]| fenced_register::check(ops, initial, raise);
            return self.judge(
                &FencedRegister { initial, raise },
                &p.parts,
                Some(&fast),
                &tell,
                p.unknown,
                notes,
            );
        }
        let fast = |ops: &[Timed<RegOp>]| zones::check(ops, initial);
        self.judge(
            &Register { initial },
            &p.parts,
            Some(&fast),
            &tell,
            p.unknown,
            notes,
        )
    }

    fn kv(&self, feed: Feed, initial: &Value) -> Run {
        let single = self.options.partition;
        let initial = if *initial == Value::Null {
            "".into()
        } else {
            text(initial)
        };
        let p = self.pair(KvFamily::new(single), feed, single)?;
        let tell = Strings {
            keys: p.family.names(),
            initial: initial.clone(),
        };
        self.judge(
            &Kv { initial, single },
            &p.parts,
            None,
            &tell,
            p.unknown,
            p.notes,
        )
    }

    /// Decides every key, on all cores. The first violated key (in order of
    /// first use) is the one reported, whatever finishes first.
    fn judge<M: Model, T: Tell<M::Op> + TellState<M::State>>(
        &self,
        model: &M,
        parts: &[Keyed<M::Op>],
        fast: Option<FastFn<M::Op>>,
        tell: &T,
        unknown: u64,
        notes: Vec<String>,
    ) -> Run {
        let violated = AtomicUsize::new(usize::MAX);
        let (options, started) = (self.options, self.started);
        let one = |i: usize| {
            let part = &parts[i];
            if violated.load(Ordering::Relaxed) < i {
                return None;
            }
            let task = Task {
                model,
                ops: &part.ops,
                fast,
                tell,
                states: tell,
                options,
                started,
            };
            let decided = task.decide();
            if matches!(
                &decided,
                Ok(Decided {
                    decision: Decision::Violated(_),
                    ..
                })
            ) {
                violated.fetch_min(i, Ordering::Relaxed);
            }
            Some(decided)
        };
        let all = each(parts.len(), options.parallel, &one);
        let mut report = Report {
            outcome: Outcome::Linearizable,
            model: self.name.to_string(),
            decided_by: "none",
            operations: parts.iter().map(|p| p.ops.len() as u64).sum(),
            unknown,
            keys: parts.len() as u64,
            notes,
            millis: 0.0,
        };
        for (part, decided) in parts.iter().zip(all) {
            let key = part.key.as_deref();
            let Some(decided) = decided else { continue };
            let decided = decided.map_err(|(fast, search)| CheckError::Disagreement {
                key: key.unwrap_or("(none)").to_string(),
                fast,
                search,
            })?;
            if report.decided_by != "search" {
                report.decided_by = decided.by;
            }
            let found = outcome(decided.decision, &part.ops, key, tell, self.index);
            match (&report.outcome, &found) {
                (Outcome::Linearizable, _) | (Outcome::Unknown(_), Outcome::Violated(_)) => {
                    report.outcome = found
                }
                _ => {}
            }
            if matches!(report.outcome, Outcome::Violated(_)) {
                report.decided_by = decided.by;
                break;
            }
        }
        if report.is_vacuous() {
            report
                .notes
                .push("no operation says anything: nothing was checked".to_string());
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::super::decide::tests::two_grants;
    use super::*;
    use crate::fast::Fast;
    use crate::options::Engine;

    /// A near-linear checker that passes everything, against a search that finds two grants at once.
    #[test]
    fn a_wrong_verdict_is_a_disagreement_and_names_the_key() {
        let options = Options {
            engine: Engine::Both,
            ..Options::default()
        };
        let job = Job {
            name: "mutex",
            options: &options,
            started: Instant::now(),
            index: &|stamp| stamp,
        };
        let parts = [Keyed {
            key: Some("k".into()),
            ops: two_grants().into(),
            did: true,
        }];
        let wrong = |_: &[Timed<LockOp>]| Fast::Linearizable;
        let model = Counting { permits: 1 };
        let tell = Locks(Vec::new());
        let run = job.judge(&model, &parts, Some(&wrong), &tell, 0, Vec::new());
        let Err(CheckError::Disagreement { key, fast, search }) = &run else {
            panic!("{run:?}");
        };
        assert_eq!((&**key, &**fast), ("k", "linearizable"));
        assert!(search.starts_with("violated"), "{search}");
    }
}
