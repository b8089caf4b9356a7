//! What is due when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::{Core, Phase, Role};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A slot has worked long enough; the process id tells a slot that went on meanwhile.
    Worked {
        slot: usize,
        process: u64,
    },
    /// A story's slot begins its next cycle.
    Again {
        slot: usize,
        process: u64,
    },
    Ping {
        worker: usize,
    },
    /// Look for workers that do not answer.
    Watch,
}

/// A heap of timers, in nanoseconds since the run began.
#[derive(Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(i64, Timer)>>,
}

impl Timers {
    pub fn set(&mut self, at: i64, timer: Timer) {
        self.heap.push(Reverse((at, timer)));
    }

    pub fn next(&self) -> Option<i64> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    pub fn pop_due(&mut self, now: i64) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, t))| t)
    }
}

/// How often the core looks for workers that hang, and at its own phases.
const WATCH: i64 = 100_000_000;

impl Core {
    pub(super) fn ring(&mut self, now: i64) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Worked { slot, process } => self.worked(slot, process),
                Timer::Again { slot, process } => {
                    if self.slots[slot].process == process && self.slot_role(slot) == Role::Story {
                        self.tell_story(slot);
                    }
                }
                Timer::Ping { worker } => self.ping(worker, now),
                Timer::Watch => {
                    self.watch(now);
                    self.timers.set(now + WATCH, Timer::Watch);
                }
            }
        }
        if self.phase >= Phase::Load && self.phase < Phase::Drain {
            let since = Duration::from_nanos((now - self.load_began).max(0) as u64);
            if self.scheduler.next_tick().is_some_and(|t| t <= since) {
                let actions = self.scheduler.tick(since);
                self.act(actions);
            }
        }
    }

    /// How long nothing will be due.
    pub(super) fn until_next(&self, now: i64) -> Duration {
        let schedule = self
            .scheduler
            .next_tick()
            .map(|t| self.load_began + t.as_nanos() as i64);
        let in_load = self.phase >= Phase::Load && self.phase < Phase::Drain;
        let due = [
            self.timers.next(),
            self.next_arrival(),
            schedule.filter(|_| in_load),
            (self.phase == Phase::Load)
                .then_some(self.load_began + self.cfg.duration)
                .filter(|end| *end > now),
            (self.phase == Phase::Calm).then_some(self.phase_since + self.cfg.calm),
        ];
        let next = due.into_iter().flatten().min().unwrap_or(now + WATCH);
        Duration::from_nanos((next - now).clamp(0, WATCH) as u64)
    }
}
