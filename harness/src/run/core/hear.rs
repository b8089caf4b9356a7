//! What workers say.

use fencepost_nemesis::schedule::CueKind;
use fencepost_workloads::protocol::{Answer, Hello, Init, Op, OpName, VERSION, WorkerEvent};

use super::slot::Step;
use super::timers::Timer;
use super::{Core, Notice, Phase, events};
use crate::record::Stamp;
use crate::worker::{Asked, Heard, Link, Reading, Session, WorkerError};

impl Core {
    pub(super) fn attach(&mut self, worker: usize, link: Link, init: Box<Init>) {
        let mut session = Session::new(worker, link);
        let budget = self.patience();
        let asked = Asked {
            op: OpName::Init,
            slot: None,
            stamp: self.stamp_now(),
            budget,
        };
        session.ask(Op::Init(init.clone()), asked);
        let known = &mut self.staff.known[worker];
        known.init = Some(init);
        known.expect_exit = false;
        known.closed = None;
        known.pinged = None;
        self.staff.sessions[worker] = Some(session);
    }

    /// Reads what a worker has said and takes it in.
    pub(super) fn hear(&mut self, worker: usize) {
        let Some(mut session) = self.staff.sessions[worker].take() else {
            return;
        };
        let mut heard = Vec::new();
        let result = session.read(|h| heard.push(h));
        self.staff.sessions[worker] = Some(session);
        for h in heard {
            match h {
                Heard::Answer { asked, answer } => self.answer(worker, asked, answer),
                Heard::Late => {}
                Heard::Event { event, after } => self.grant_event(worker, &event, after),
                Heard::Of { event, slot } => self.slot_event(worker, slot, event),
            }
        }
        match result {
            Ok(Reading::Drained) => {}
            Ok(Reading::Closed) => self.output_closed(worker),
            Err(e) => {
                self.worker_failed(e);
                self.gone(worker, "it broke the protocol");
            }
        }
    }

    fn answer(&mut self, worker: usize, asked: Asked, answer: Answer) {
        match (asked.slot, answer) {
            (Some(slot), answer) => self.answered(slot, asked.op, &answer),
            (None, Answer::Hello(hello)) => self.greeted(worker, hello),
            (None, Answer::Claims(claims)) => {
                self.staff.known[worker].pinged = None;
                let process = self.staff.known[worker].process.clone();
                self.record(events::claims(&process, &claims, asked.stamp));
            }
            (None, Answer::Fail(why) | Answer::Info(why)) if asked.op == OpName::Init => {
                self.worker_failed(WorkerError::Refused {
                    worker,
                    why: why.to_string(),
                });
            }
            (None, Answer::Fail(_) | Answer::Info(_)) => self.staff.known[worker].pinged = None,
            // The answer to `close`: the worker exits at the end of its input.
            (None, _) => {
                if let Some(session) = &mut self.staff.sessions[worker] {
                    session.hang_up();
                }
            }
        }
    }

    fn greeted(&mut self, worker: usize, hello: Hello) {
        if hello.protocol != VERSION {
            return self.worker_failed(WorkerError::Version {
                worker,
                theirs: hello.protocol,
                ours: VERSION,
            });
        }
        let wanted = self.staff.known[worker]
            .init
            .as_ref()
            .map_or(0, |i| i.clients);
        if hello.clients < wanted.min(1) {
            return self.worker_failed(WorkerError::TooFew {
                worker,
                most: hello.clients,
                wanted,
            });
        }
        let lacking: Vec<_> = self
            .scheduler
            .points()
            .filter(|p| !hello.points.contains(p))
            .cloned()
            .collect();
        for point in lacking {
            self.scheduler.lacks_point(worker as u32, &point);
        }
        let known = &mut self.staff.known[worker];
        known.name = hello.name.to_string();
        known.ready = true;
        known.resumed = self.rec.now();
        for slot in 0..self.slots.len() {
            let s = &mut self.slots[slot];
            // A worker that carries fewer clients than asked for leaves the others parked.
            if s.worker == worker && s.client < hello.clients && s.step == Step::Parked {
                s.step = Step::Idle;
                if self.phase >= Phase::Load {
                    self.revive(slot);
                }
            }
        }
        let now = self.rec.now();
        self.timers.set(now, Timer::Ping { worker });
        if self.phase == Phase::Setup && self.staff.all_ready() {
            self.timers.set(now, Timer::Watch);
            let _ = self.notices.send(Notice::Ready);
        }
    }

    /// A client of a restarted worker goes on under a new process id.
    fn revive(&mut self, slot: usize) {
        self.renumber(slot);
        match self.slot_role(slot) {
            super::Role::Load => self.idle.push_back(slot),
            super::Role::Story => self.tell_story_later(slot),
        }
    }

    pub(super) fn renumber(&mut self, slot: usize) {
        self.slots[slot].process = self.next_process;
        self.next_process += 1;
    }

    /// Records a completion and lets the slot go on.
    pub(super) fn answered(&mut self, slot: usize, op: OpName, answer: &Answer) {
        let s = &self.slots[slot];
        let (worker, key, process) = (s.worker as u32, s.key.clone(), s.process);
        let Some(f) = events::name(op) else { return };
        let event = self.record(events::completion(process, &f, &key, answer));
        let since = self.slots[slot].op_start;
        self.figures.answered(op, answer, event.time - since);
        match (op, answer) {
            (OpName::Acquire, Answer::Granted(_)) => {
                self.recovery.granted = true;
                self.board.answered(&key, worker, true);
            }
            (OpName::Acquire, _) => {
                self.figures.busy += u64::from(matches!(answer, Answer::Fail(_)));
                self.board.answered(&key, worker, false);
            }
            (OpName::Release, _) => self.board.leaves(&key, worker),
            _ => {}
        }
        if let Answer::Info(_) = answer {
            self.renumber(slot);
        }
        self.slots[slot].op_start = event.time;
        let next = self.slots[slot].answered(answer, self.next_value);
        if let Some(kind) = cue_kind(op, answer) {
            self.cue_of(kind, slot);
        }
        self.proceed(slot, next);
    }

    fn grant_event(&mut self, worker: usize, event: &WorkerEvent, after: Stamp) {
        let process = self.staff.known[worker].process.clone();
        let Some(draft) = events::grant_event(&process, event, after) else {
            return;
        };
        self.record(draft);
        let (kind, key, owner) = match event {
            WorkerEvent::Lost { key, owner, .. } => (CueKind::Lost, key, owner),
            WorkerEvent::Renew {
                key,
                owner,
                ok: Some(true),
                ..
            } => (CueKind::Renew, key, owner),
            _ => return,
        };
        if kind == CueKind::Lost {
            self.board.leaves(key, worker as u32);
        }
        self.cue(
            kind,
            worker as u32,
            Some(key.clone()),
            Some(owner.clone()),
            None,
        );
    }

    fn slot_event(&mut self, worker: usize, slot: usize, event: WorkerEvent) {
        let name = self.staff.known[worker].process.clone();
        let (key, process) = (self.slots[slot].key.clone(), self.slots[slot].process);
        match event {
            WorkerEvent::Queued { .. } => {
                self.record(events::queued(&name, &key, process));
                self.cue_of(CueKind::Queued, slot);
            }
            WorkerEvent::Woken { .. } => {
                self.record(events::woken(&name, &key, process));
            }
            WorkerEvent::Point { name: point, id } => {
                self.record(events::point(&name, &key, &point, process, false));
                let owner = self.slots[slot].grant.as_ref().map(|g| g.owner.clone());
                self.cue(
                    CueKind::Point,
                    worker as u32,
                    Some(key),
                    owner,
                    Some((point, id)),
                );
            }
            WorkerEvent::Renew { .. } | WorkerEvent::Lost { .. } => {}
        }
    }

    pub(super) fn ping(&mut self, worker: usize, now: i64) {
        let every = (self.cfg.ttl.as_nanos() as i64 / 20).max(5_000_000);
        if self.phase >= Phase::Closing || !self.staff.known[worker].ready {
            return;
        }
        self.timers.set(now + every, Timer::Ping { worker });
        // One at a time: a stopped worker's pipe must not fill with pings.
        if self.staff.known[worker].pinged.is_some() {
            return;
        }
        let asked = Asked {
            op: OpName::Ping,
            slot: None,
            stamp: self.stamp_now(),
            budget: self.patience(),
        };
        if let Some(session) = &mut self.staff.sessions[worker] {
            self.staff.known[worker].pinged = Some(session.ask(Op::Ping, asked));
        }
    }

    /// Looks for requests that a running worker has left unanswered for too long.
    pub(super) fn watch(&mut self, now: i64) {
        for worker in 0..self.staff.sessions.len() {
            let known = &self.staff.known[worker];
            if known.closed.is_some_and(|at| now - at > 2_000_000_000) {
                self.exited(worker, "it closed its output and did not exit");
                continue;
            }
            if self.staff.is_paused(worker) || self.phase >= Phase::Closing {
                continue;
            }
            let resumed = known.resumed;
            let Some(session) = &self.staff.sessions[worker] else {
                continue;
            };
            let late = session.overdue(now, resumed);
            if let Some((id, asked)) = late {
                let (op, ms) = (
                    events::word(asked.op),
                    asked.budget.unsigned_abs() / 1_000_000,
                );
                self.worker_failed(WorkerError::Hung { worker, id, op, ms });
                self.gone(worker, "it hangs");
            }
        }
    }

    fn output_closed(&mut self, worker: usize) {
        self.staff.known[worker].closed = Some(self.rec.now());
        if let Some(session) = &mut self.staff.sessions[worker] {
            session.close_output();
        }
    }

    /// A worker's process has ended.
    pub(super) fn exited(&mut self, worker: usize, how: &str) {
        if self.staff.sessions[worker].is_none() {
            return;
        }
        // Its last words may still be in the pipe.
        if self.staff.sessions[worker]
            .as_ref()
            .is_some_and(|s| !s.is_closed())
        {
            self.hear(worker);
        }
        let expected = self.staff.known[worker].expect_exit || self.phase >= Phase::Closing;
        let process = self.staff.known[worker].process.clone();
        if !expected {
            let line = self.staff.sessions[worker]
                .as_ref()
                .map_or(0, |s| s.lines());
            let log = self
                .cfg
                .log_dir
                .join(format!("worker-{worker}.log"))
                .display()
                .to_string();
            self.worker_failed(WorkerError::Died {
                worker,
                line,
                how: how.into(),
                log,
            });
        }
        self.record(events::exit(&process, how, expected));
        self.gone(worker, "its worker ended");
        self.cue(CueKind::Exit, worker as u32, None, None, None);
    }

    /// Forgets a worker: what it was asked stays unknown.
    fn gone(&mut self, worker: usize, why: &str) {
        let Some(mut session) = self.staff.sessions[worker].take() else {
            return;
        };
        let left = session.abandon();
        drop(session);
        let known = &mut self.staff.known[worker];
        known.ready = false;
        known.pauses.clear();
        known.pinged = None;
        known.closed = None;
        for (_, asked) in left {
            if let Some(slot) = asked.slot {
                self.give_up(slot, asked.op, why);
            }
        }
        for s in self.slots.iter_mut().filter(|s| s.worker == worker) {
            s.step = Step::Parked;
            s.grant = None;
            s.released = None;
        }
        let slots = &self.slots;
        self.idle.retain(|s| slots[*s].worker != worker);
    }

    /// The outcome of a slot's operation will never be known.
    fn give_up(&mut self, slot: usize, op: OpName, why: &str) {
        let s = &self.slots[slot];
        let (worker, key, process) = (s.worker as u32, s.key.clone(), s.process);
        let Some(f) = events::name(op) else { return };
        self.record(events::unknown(process, &f, &key, why));
        if op == OpName::Acquire {
            self.board.answered(&key, worker, false);
        }
        self.figures.answered(op, &Answer::Info(why.into()), 0);
        self.renumber(slot);
    }

    pub(super) fn abandon_all(&mut self, why: &str) {
        for worker in 0..self.staff.sessions.len() {
            let Some(session) = &mut self.staff.sessions[worker] else {
                continue;
            };
            for (_, asked) in session.abandon() {
                if let Some(slot) = asked.slot {
                    self.give_up(slot, asked.op, why);
                    self.slots[slot].step = Step::Parked;
                }
            }
        }
    }

    /// Asks every worker to free what it holds and to exit.
    pub(super) fn close_workers(&mut self) {
        for worker in 0..self.staff.sessions.len() {
            let Some(mut session) = self.staff.sessions[worker].take() else {
                continue;
            };
            session.abandon();
            let process = self.staff.known[worker].process.clone();
            self.record(events::close(&process));
            let asked = Asked {
                op: OpName::Close,
                slot: None,
                stamp: self.stamp_now(),
                budget: i64::MAX,
            };
            session.ask(Op::Close, asked);
            self.staff.sessions[worker] = Some(session);
        }
    }

    /// The last event, and now.
    fn stamp_now(&self) -> Stamp {
        Stamp {
            index: self.rec.latest().index,
            time: self.rec.now(),
        }
    }
}

/// What an answer means to the schedule.
fn cue_kind(op: OpName, answer: &Answer) -> Option<CueKind> {
    if matches!(answer, Answer::Fail(_) | Answer::Info(_)) {
        return None;
    }
    Some(match op {
        OpName::Acquire => CueKind::Grant,
        OpName::Renew => CueKind::Renew,
        OpName::Read => CueKind::Read,
        OpName::Write | OpName::Add => CueKind::Write,
        OpName::Release => CueKind::Release,
        OpName::Init | OpName::Ping | OpName::Close => return None,
    })
}
