//! When a plan fires, what it orders, and when it comes to rest.

use std::time::Duration;

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::{Action, Cause, CueKind, Firing, Line, Order, Scheduler, State};
use crate::schedule::Span;

/// With `until`, a fault that nothing ends is healed after this.
const AT_MOST: Duration = Duration::from_secs(30);

/// What of a firing a draw is for: each has a random stream of its own, so that one more draw
/// here changes nothing there.
#[derive(Clone, Copy)]
pub(super) enum Draw {
    Wait = 1,
    Hold,
    AtMost,
    Choice,
    Order,
}

impl Scheduler {
    pub(super) fn rng(&self, plan: usize, nth: u32, what: Draw) -> ChaCha8Rng {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(((plan as u64) << 40) | (u64::from(nth) << 8) | what as u64);
        rng
    }

    /// Back to waiting for the next time or event, if there is one.
    pub(super) fn rest(&mut self, i: usize, now: Duration) {
        let live = &self.plans[i];
        let once = live.plan.calm.is_none()
            && live
                .plan
                .on
                .as_ref()
                .is_none_or(|on| on.event == CueKind::Point);
        let count = live.plan.count.unwrap_or(if once { 1 } else { u32::MAX });
        let over = self.ended || live.nth >= count;
        let mut due = None;
        if live.plan.on.is_none() {
            let mut rng = self.rng(i, live.nth, Draw::Wait);
            let first = live.plan.at.as_ref().filter(|_| live.nth == 0);
            let waits = first.into_iter().chain(live.plan.calm.as_ref());
            due = Some(waits.fold(now, |t, s| t + s.draw(self.ttl, &mut rng)));
            if let Some(times) = &self.replay {
                due = times.get(&(i, live.nth + 1)).copied();
            }
        }
        let never = live.plan.on.is_none() && due.is_none();
        self.plans[i].state = if over || never {
            State::Done
        } else {
            State::Idle(due)
        };
    }

    pub(super) fn fire(
        &mut self,
        i: usize,
        mut cause: Cause,
        now: Duration,
        out: &mut Vec<Action>,
    ) {
        let nth = self.plans[i].nth;
        let plan = self.plans[i].plan.clone();
        cause.lock = cause.lock.or(plan.lock);
        let length = |span: &Span, what| span.draw(self.ttl, &mut self.rng(i, nth, what));
        let hold = plan.hold.as_ref().map(|s| length(s, Draw::Hold));
        let at_most = plan
            .at_most
            .as_ref()
            .map_or(AT_MOST, |s| length(s, Draw::AtMost));
        let mut parts = Vec::new();
        if let Some(fault) = &plan.fault {
            parts.push((fault.clone(), plan.target.clone(), plan.params.clone()));
        } else if let Ok(c) = plan
            .mix
            .choose_weighted(&mut self.rng(i, nth, Draw::Choice), |c| c.weight)
        {
            parts.push((c.fault.clone(), c.target.clone(), c.params.clone()));
        }
        parts.extend(plan.with.into_iter().map(|p| (p.fault, p.target, p.params)));
        let mut rng = self.rng(i, nth, Draw::Order);
        let lock = cause.lock.clone();
        let mut ids = Vec::new();
        self.plans[i].nth = nth + 1;
        for (fault, targets, params) in parts {
            self.orders += 1;
            let id = format!("f{}", self.orders);
            ids.push(id.clone());
            let (lock, trigger, draw) = (lock.clone(), cause.trigger, rng.random());
            let order = Order {
                id,
                fault,
                targets,
                params,
                draw,
                lock,
                trigger,
            };
            self.note(i, nth + 1, now, Action::Install { order }, out);
        }
        let firing = Firing::new(cause, ids, hold, plan.until, at_most);
        self.plans[i].state = State::Fired(firing);
    }

    pub(super) fn end_if_ripe(&mut self, i: usize, now: Duration, out: &mut Vec<Action>) {
        let (ended, nth) = (self.ended, self.plans[i].nth);
        let State::Fired(f) = &mut self.plans[i].state else {
            return;
        };
        let why = if ended {
            Some("the load is over")
        } else {
            f.ripe(now)
        };
        if f.is_over() {
            self.rest(i, now);
        } else if let Some(why) = why {
            for id in f.heal() {
                self.note(
                    i,
                    nth,
                    now,
                    Action::Heal {
                        id,
                        why: why.into(),
                    },
                    out,
                );
            }
        }
    }

    pub(super) fn note(
        &mut self,
        plan: usize,
        nth: u32,
        now: Duration,
        action: Action,
        out: &mut Vec<Action>,
    ) {
        let time = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        self.lines.push(Line::Action {
            time,
            plan,
            nth,
            action: action.clone(),
        });
        out.push(action);
    }
}
