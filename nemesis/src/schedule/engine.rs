//! The engine: cues and times in, actions out.

mod fire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cue::{Cue, CueKind};
use super::firing::{Cause, Firing};
use super::plan::{Plan, PlanError};
use super::save::{self, Line, SaveError};
use crate::fault::Order;
use crate::process::ProcId;
use fire::Draw;

/// What the controller has to do now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Action {
    Install {
        order: Order,
    },
    Heal {
        id: String,
        why: String,
    },
    /// Let the operation that waits at a point go on: `{"go":op}` to this worker.
    Go {
        worker: u32,
        op: u64,
    },
}

#[derive(Clone, Debug)]
enum State {
    /// Waits for its time, or (`None`) for its event.
    Idle(Option<Duration>),
    /// Its event happened; fires at this time.
    Armed(Duration, Cause),
    Fired(Firing),
    Done,
}

struct Live {
    plan: Plan,
    state: State,
    /// Firings so far.
    nth: u32,
    /// Matching events let pass so far (`on.skip`).
    passed: u32,
}

/// Turns plans into actions. Times are since the load began and never go back.
pub struct Scheduler {
    plans: Vec<Live>,
    seed: u64,
    ttl: Duration,
    orders: u32,
    lacking: BTreeSet<(u32, Arc<str>)>,
    /// Recorded times of installs, when this replays a saved schedule.
    replay: Option<BTreeMap<(usize, u32), Duration>>,
    lines: Vec<Line>,
    ended: bool,
}

impl Scheduler {
    /// # Errors
    /// The first plan that makes no sense ([`Plan::check`]).
    pub fn new(plans: Vec<Plan>, seed: u64, ttl: Duration) -> Result<Self, PlanError> {
        Self::build(plans, seed, ttl, None)
    }

    /// The schedule that these lines recorded: time-driven faults at the recorded times,
    /// event-driven ones on the same events, every draw the same.
    ///
    /// # Errors
    /// When the lines do not begin with plans of a known format.
    pub fn replay(lines: &[Line]) -> Result<Self, SaveError> {
        let Some(Line::Plans {
            format,
            seed,
            ttl_us,
            plans,
        }) = lines.first()
        else {
            return Err(SaveError::NoPlans);
        };
        if *format != save::FORMAT {
            return Err(SaveError::Format(*format));
        }
        let ttl = Duration::from_micros(*ttl_us);
        Ok(Self::build(
            plans.clone(),
            *seed,
            ttl,
            Some(save::install_times(lines)),
        )?)
    }

    fn build(
        plans: Vec<Plan>,
        seed: u64,
        ttl: Duration,
        replay: Option<BTreeMap<(usize, u32), Duration>>,
    ) -> Result<Self, PlanError> {
        for (at, plan) in plans.iter().enumerate() {
            plan.check(at)?;
        }
        let ttl_us = u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX);
        let header = Line::Plans {
            format: save::FORMAT,
            seed,
            ttl_us,
            plans: plans.clone(),
        };
        let live = |plan| Live {
            plan,
            state: State::Idle(None),
            nth: 0,
            passed: 0,
        };
        let mut s = Scheduler {
            plans: plans.into_iter().map(live).collect(),
            seed,
            ttl,
            orders: 0,
            lacking: BTreeSet::new(),
            replay,
            lines: vec![header],
            ended: false,
        };
        for i in 0..s.plans.len() {
            s.rest(i, Duration::ZERO);
        }
        Ok(s)
    }

    /// Says that this worker cannot stop at this point: its grants trigger instead.
    pub fn lacks_point(&mut self, worker: u32, point: &str) {
        self.lacking.insert((worker, point.into()));
    }

    /// All points that plans wait for: what to ask [`Scheduler::lacks_point`] about.
    pub fn points(&self) -> impl Iterator<Item = &Arc<str>> {
        self.plans
            .iter()
            .filter_map(|l| l.plan.on.as_ref()?.point.as_ref())
    }

    /// The point at which a write of this worker on this lock has to stop, if any.
    pub fn stop_at(&self, worker: u32, lock: Option<&str>, now: Duration) -> Option<&str> {
        if self.ended {
            return None;
        }
        self.plans.iter().find_map(|l| {
            let on = l.plan.on.as_ref()?;
            let point = on.point.as_ref()?;
            let ready = matches!(l.state, State::Idle(_)) && on.concerns(worker, lock);
            let early = on
                .not_before
                .as_ref()
                .is_some_and(|s| now < s.at_least(self.ttl));
            (ready && !early && !self.lacking.contains(&(worker, point.clone())))
                .then_some(&**point)
        })
    }

    /// Takes note of an event.
    pub fn on_cue(&mut self, cue: &Cue, now: Duration) -> Vec<Action> {
        let mut taken = false;
        for i in 0..self.plans.len() {
            if let State::Fired(f) = &mut self.plans[i].state {
                f.on_cue(cue);
            } else if !taken && self.triggers(i, cue, now) {
                // One operation waits for one `go`: only one plan may take a point.
                taken = cue.kind == CueKind::Point;
                let live = &self.plans[i];
                let after = live.plan.after.clone();
                let wait = after.map(|s| s.draw(self.ttl, &mut self.rng(i, live.nth, Draw::Wait)));
                let waiting = cue.point.as_ref().map(|(_, op)| (cue.worker, *op));
                let lock = cue.lock.clone();
                let cause = Cause {
                    lock,
                    trigger: Some(cue.worker),
                    waiting,
                };
                self.plans[i].state = State::Armed(now + wait.unwrap_or_default(), cause);
            }
        }
        let mut out = self.tick(now);
        if let Some((_, op)) = cue.point.as_ref().filter(|_| !taken) {
            let go = Action::Go {
                worker: cue.worker,
                op: *op,
            };
            out.push(go);
        }
        out
    }

    fn triggers(&mut self, i: usize, cue: &Cue, now: Duration) -> bool {
        let live = &mut self.plans[i];
        let (State::Idle(_), Some(on), false) = (&live.state, &live.plan.on, self.ended) else {
            return false;
        };
        let kind = match &on.point {
            None => on.event == cue.kind,
            Some(want) if self.lacking.contains(&(cue.worker, want.clone())) => {
                cue.kind == CueKind::Grant
            }
            Some(want) => {
                cue.kind == CueKind::Point && cue.point.as_ref().is_some_and(|(p, _)| p == want)
            }
        };
        let early = on
            .not_before
            .as_ref()
            .is_some_and(|s| now < s.at_least(self.ttl));
        if !kind || early || !on.passes(cue) {
            return false;
        }
        live.passed = live.passed.saturating_add(1);
        live.passed > on.skip
    }

    /// Does what is due at `now`.
    pub fn tick(&mut self, now: Duration) -> Vec<Action> {
        let mut out = Vec::new();
        for i in 0..self.plans.len() {
            match &mut self.plans[i].state {
                State::Idle(Some(due)) if *due <= now => {
                    self.fire(i, Cause::default(), now, &mut out)
                }
                State::Armed(due, cause) if *due <= now => {
                    let cause = cause.clone();
                    self.fire(i, cause, now, &mut out);
                }
                State::Fired(_) => self.end_if_ripe(i, now, &mut out),
                _ => {}
            }
        }
        out
    }

    /// When [`Scheduler::tick`] will next have something to do, if no event comes first.
    pub fn next_tick(&self) -> Option<Duration> {
        let due = |l: &Live| match &l.state {
            State::Idle(due) => *due,
            State::Armed(due, _) => Some(*due),
            State::Fired(f) => f.due(),
            State::Done => None,
        };
        self.plans.iter().filter_map(due).min()
    }

    /// An install came to its end: whom it hit, and whether the nemesis holds a handle of it.
    pub fn settled(&mut self, id: &str, hit: &[ProcId], holds: bool, now: Duration) -> Vec<Action> {
        let mut out = Vec::new();
        for i in 0..self.plans.len() {
            let nth = self.plans[i].nth;
            let State::Fired(f) = &mut self.plans[i].state else {
                continue;
            };
            if !f.has(id) {
                continue;
            }
            if f.settled(id, hit, holds, now) {
                if let Some((worker, op)) = f.cause.waiting.take() {
                    let go = Action::Go { worker, op };
                    self.note(i, nth, now, go, &mut out);
                }
                self.end_if_ripe(i, now, &mut out);
            }
        }
        out
    }

    /// A heal came to its end.
    pub fn healed(&mut self, id: &str, now: Duration) {
        for i in 0..self.plans.len() {
            if let State::Fired(f) = &mut self.plans[i].state
                && f.has(id)
            {
                f.healed(id);
                if f.is_over() {
                    self.rest(i, now);
                }
            }
        }
    }

    /// The load is over: nothing more begins, everything that holds ends.
    pub fn end(&mut self, now: Duration) -> Vec<Action> {
        self.ended = true;
        let mut out = Vec::new();
        for i in 0..self.plans.len() {
            let nth = self.plans[i].nth;
            match &mut self.plans[i].state {
                State::Fired(_) => self.end_if_ripe(i, now, &mut out),
                State::Armed(_, cause) => {
                    if let Some((worker, op)) = cause.waiting.take() {
                        self.note(i, nth, now, Action::Go { worker, op }, &mut out);
                    }
                    self.plans[i].state = State::Done;
                }
                state => *state = State::Done,
            }
        }
        out
    }

    /// The lines of `schedule.jsonl` since the last call.
    pub fn take_lines(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.lines)
    }
}
