//! The schedule: what happened goes in, what to do comes out.

use std::sync::Arc;
use std::time::Duration;

use fencepost_nemesis::schedule::{Action, Cue, CueKind};
use fencepost_nemesis::{Kind, ProcId, Report};
use fencepost_workloads::protocol::Op;
use tokio::sync::oneshot;

use super::{Core, Notice, Phase, events};
use crate::record::Draft;

impl Core {
    fn since_load(&self) -> Duration {
        Duration::from_nanos((self.rec.now() - self.load_began).max(0) as u64)
    }

    /// Asks for a stop at a point where the schedule wants one.
    pub(super) fn stop_at_point(&self, slot: usize, op: &mut Op) {
        let stop_at = match op {
            Op::Write(w) => &mut w.stop_at,
            Op::Add(a) => &mut a.stop_at,
            _ => return,
        };
        let s = &self.slots[slot];
        if self.phase == Phase::Load {
            let point = self
                .scheduler
                .stop_at(s.worker as u32, Some(&s.key), self.since_load());
            *stop_at = point.map(Into::into);
        }
    }

    /// Tells the schedule of something that a slot did.
    pub(super) fn cue_of(&mut self, kind: CueKind, slot: usize) {
        let s = &self.slots[slot];
        let owner = s.grant.as_ref().map(|g| g.owner.clone());
        self.cue(kind, s.worker as u32, Some(s.key.clone()), owner, None);
    }

    pub(super) fn cue(
        &mut self,
        kind: CueKind,
        worker: u32,
        lock: Option<Arc<str>>,
        owner: Option<Arc<str>>,
        point: Option<(Arc<str>, u64)>,
    ) {
        if self.load_began == 0 {
            return;
        }
        let mut cue = Cue::new(kind, worker, lock).owner(owner);
        cue.point = point;
        let actions = self.scheduler.on_cue(&cue, self.since_load());
        self.act(actions);
    }

    pub(super) fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Go { worker, op } => self.go(worker as usize, op),
                Action::Install { .. } | Action::Heal { .. } => {
                    self.acting += 1;
                    let _ = self.notices.send(Notice::Act(action));
                }
            }
        }
    }

    fn go(&mut self, worker: usize, id: u64) {
        let Some(session) = self.staff.sessions.get_mut(worker).and_then(Option::as_mut) else {
            return;
        };
        let Some(slot) = session.asked(id).and_then(|a| a.slot) else {
            return;
        };
        session.go(id);
        let name = self.staff.known[worker].process.clone();
        let (key, process) = (self.slots[slot].key.clone(), self.slots[slot].process);
        let point: Arc<str> = fencepost_workloads::protocol::BEFORE_STORE_WRITE.into();
        self.record(events::point(&name, &key, &point, process, true));
    }

    /// Records what the nemesis reports, and lets the schedule go on.
    pub(super) fn reported(
        &mut self,
        report: &Report,
        holds: bool,
        recorded: Option<oneshot::Sender<()>>,
    ) {
        let json = serde_json::to_value(report).unwrap_or_default();
        let nemesis: Arc<str> = fencepost_history::names::NEMESIS.into();
        self.record(Draft::named(
            &nemesis,
            fencepost_history::names::FAULT,
            events::from_json(&json),
        ));
        self.flush();
        if let Some(recorded) = recorded {
            let _ = recorded.send(());
        }
        self.progress.set_note(format!(
            "{} {} {}",
            report.fault, report.action, report.status
        ));
        self.note_pauses(report);
        if report.status == "started" {
            return;
        }
        self.acting = self.acting.saturating_sub(1);
        let now = self.since_load();
        if report.action == "install" {
            if holds {
                self.holding.insert(report.id.clone());
            }
            let actions = self
                .scheduler
                .settled(&report.id, &report.affects, holds, now);
            self.act(actions);
        } else {
            self.holding.remove(&report.id);
            self.scheduler.healed(&report.id, now);
        }
    }

    /// Appends new lines of the schedule to its file.
    pub(super) fn save_schedule(&mut self) {
        let lines = self.scheduler.take_lines();
        if lines.is_empty() {
            return;
        }
        let mut text = Vec::new();
        for line in &lines {
            serde_json::to_writer(&mut text, line).expect("invariant: a schedule has string keys");
            text.push(b'\n');
        }
        if let Err(e) = self.schedule.write_all(&text) {
            self.fail(format!("cannot write schedule.jsonl: {e}"));
        }
    }

    pub(super) fn nothing_to_heal(&mut self, id: &str) {
        self.acting = self.acting.saturating_sub(1);
        self.holding.remove(id);
        self.scheduler.healed(id, self.since_load());
    }

    /// Keeps track of which workers cannot run: they are not hung.
    fn note_pauses(&mut self, report: &Report) {
        if report.kind != Kind::Pause {
            return;
        }
        let now = self.rec.now();
        let begins = report.action == "install" && report.status != "skipped";
        for id in &report.affects {
            let ProcId::Worker(worker) = id else { continue };
            let Some(known) = self.staff.known.get_mut(*worker as usize) else {
                continue;
            };
            if begins && report.status == "started" {
                known.pauses.push(report.id.clone());
            } else if !begins && report.status != "started" {
                known.pauses.retain(|f| *f != report.id);
                known.resumed = now;
            }
        }
    }

    /// The time of faults is over: what holds is healed.
    pub(super) fn end_faults(&mut self) {
        if self.phase != Phase::Load {
            return;
        }
        self.enter(Phase::Healing);
        let actions = self.scheduler.end(self.since_load());
        self.act(actions);
    }
}
