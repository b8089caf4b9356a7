//! The open-loop load: arrivals come when the schedule says, whatever the service does.

use std::sync::Arc;

use fencepost_workloads::protocol::{Answer, Op};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::slot::{Job, Next, Role, Slot, Step};
use super::timers::Timer;
use super::{Core, Phase, Settings, events, lock_name};
use crate::worker::Asked;

/// A cycle that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Intended start: latency counts from here even when no client was free.
    pub at: i64,
    pub lock: u32,
}

/// Draws arrivals: one in every interval of 1/rate, at a random place in it. So the count is
/// exact and the seed alone decides the times.
pub struct Pacer {
    interval: f64,
    locks: u32,
    rng: ChaCha8Rng,
    drawn: u64,
    next: Option<Arrival>,
    start: i64,
}

impl Pacer {
    /// `rate` cycles a second over `locks` locks; a rate of 0 never arrives.
    pub fn new(rate: f64, locks: u32, seed: u64) -> Self {
        let interval = if rate > 0.0 { 1e9 / rate } else { 0.0 };
        Pacer {
            interval,
            locks,
            rng: ChaCha8Rng::seed_from_u64(seed),
            drawn: 0,
            next: None,
            start: 0,
        }
    }

    pub fn start(&mut self, at: i64) {
        self.start = at;
        if self.interval > 0.0 {
            self.draw();
        }
    }

    pub fn stop(&mut self) {
        self.next = None;
    }

    fn draw(&mut self) {
        let place: f64 = self.rng.random();
        let at = self.start + ((self.drawn as f64 + place) * self.interval) as i64;
        self.drawn += 1;
        self.next = Some(Arrival {
            at,
            lock: self.rng.random_range(0..self.locks),
        });
    }

    /// The next arrival if it is due.
    pub fn take(&mut self, now: i64) -> Option<Arrival> {
        let due = self.next.filter(|a| a.at <= now)?;
        self.draw();
        Some(due)
    }

    pub fn next(&self) -> Option<i64> {
        self.next.map(|a| a.at)
    }

    /// Arrivals taken so far.
    pub fn due(&self) -> u64 {
        self.drawn.saturating_sub(1)
    }
}

/// What came of the acquires since every fault was healed.
#[derive(Default)]
pub struct Recovery {
    pub asked: bool,
    pub granted: bool,
}

/// All clients of all workers: on each worker the story's client first, where it has one.
pub fn slots(cfg: &Settings) -> Vec<Slot> {
    let slot = |worker, client, role, key: Arc<str>| Slot {
        worker,
        client,
        role,
        process: 0,
        step: Step::Parked,
        key,
        job: Job::Update,
        work: 0,
        cycle_start: 0,
        op_start: 0,
        grant: None,
        released: None,
        read: None,
    };
    let mut all = Vec::new();
    for worker in 0..cfg.workers {
        let story = cfg.story.as_ref().filter(|s| worker <= s.rivals);
        if let Some(s) = story {
            all.push(slot(worker, 0, Role::Story, s.lock.clone()));
        }
        let first = u32::from(story.is_some());
        for client in 0..cfg.clients {
            all.push(slot(worker, first + client, Role::Load, lock_name(0)));
        }
    }
    for (n, s) in all.iter_mut().enumerate() {
        s.process = n as u64;
    }
    all
}

impl Core {
    pub(super) fn begin_load(&mut self) {
        if self.phase != Phase::Setup {
            return;
        }
        self.load_began = self.rec.now();
        self.enter(Phase::Load);
        self.pacer.start(self.load_began);
        let ready: Vec<usize> = (0..self.slots.len())
            .filter(|s| self.slots[*s].step == Step::Idle)
            .collect();
        let mut load: Vec<usize> = ready
            .iter()
            .copied()
            .filter(|s| self.slot_role(*s) == Role::Load)
            .collect();
        // Neighbours in the queue are of different workers, so that a low rate reaches all of them.
        load.sort_by_key(|s| (self.slots[*s].client, self.slots[*s].worker));
        self.idle = load.into();
        for slot in ready {
            if self.slot_role(slot) == Role::Story {
                self.tell_story_later(slot);
            }
        }
    }

    pub(super) fn next_arrival(&self) -> Option<i64> {
        self.pacer.next()
    }

    /// Takes what is due and gives it to free clients, the oldest first.
    pub(super) fn arrive(&mut self, now: i64) {
        while let Some(arrival) = self.pacer.take(now) {
            self.backlog.push_back(arrival);
        }
        while !self.backlog.is_empty() {
            let Some(slot) = self.free_slot() else { return };
            if let Some(arrival) = self.backlog.pop_front() {
                self.begin_cycle(slot, arrival);
            }
        }
    }

    /// A client that can start a cycle. Those of a worker that is stopped stay in the queue.
    fn free_slot(&mut self) -> Option<usize> {
        for _ in 0..self.idle.len() {
            let slot = self.idle.pop_front()?;
            if self.slots[slot].step != Step::Idle {
                continue;
            }
            if !self.staff.is_paused(self.slots[slot].worker) {
                return Some(slot);
            }
            self.idle.push_back(slot);
        }
        None
    }

    fn begin_cycle(&mut self, slot: usize, arrival: Arrival) {
        let coin = self.rng.random();
        let work = self.cfg.work.draw(self.cfg.ttl, &mut self.rng).as_nanos() as i64;
        let key = self.board.lock(arrival.lock);
        let s = &mut self.slots[slot];
        s.job = Job::of(self.cfg.workload, coin);
        s.work = work;
        s.key = key;
        s.cycle_start = arrival.at;
        s.op_start = arrival.at;
        let op = s.begin(
            self.cfg.mode,
            self.cfg.ttl_ms,
            self.cfg.wait.as_millis() as u64,
            self.cfg.permits,
        );
        self.ask(slot, op);
    }

    /// The next cycle of a story's client.
    pub(super) fn tell_story(&mut self, slot: usize) {
        let Some(story) = self.cfg.story.clone() else {
            return;
        };
        if self.phase < Phase::Load
            || self.phase >= Phase::Drain
            || self.slots[slot].step != Step::Idle
        {
            return;
        }
        let now = self.rec.now();
        if story.again
            && let Some(op) = self.slots[slot].again()
        {
            self.slots[slot].op_start = now;
            return self.ask(slot, op);
        }
        let work = story.work.draw(self.cfg.ttl, &mut self.rng).as_nanos() as i64;
        let s = &mut self.slots[slot];
        s.job = Job::Update;
        s.work = work;
        s.cycle_start = now;
        s.op_start = now;
        let op = s.begin(
            self.cfg.mode,
            self.cfg.ttl_ms,
            story.wait.as_millis() as u64,
            self.cfg.permits,
        );
        self.ask(slot, op);
    }

    pub(super) fn tell_story_later(&mut self, slot: usize) {
        let Some(story) = &self.cfg.story else { return };
        let mut pause = story.pause.draw(self.cfg.ttl, &mut self.rng).as_nanos() as i64;
        if story.again {
            // The release once more comes somewhere in the pause, which stays as long as it was on average.
            pause = (pause as f64 * self.rng.random::<f64>()) as i64;
        }
        let process = self.slots[slot].process;
        self.timers
            .set(self.rec.now() + pause, Timer::Again { slot, process });
    }

    pub(super) fn worked(&mut self, slot: usize, process: u64) {
        let s = &mut self.slots[slot];
        if s.process != process || s.step != Step::Working {
            return;
        }
        s.op_start = self.rec.now();
        let next = s.worked(self.next_value);
        self.proceed(slot, next);
    }

    /// Records and stages an operation of a slot.
    pub(super) fn ask(&mut self, slot: usize, mut op: Op) {
        let (worker, process) = (self.slots[slot].worker, self.slots[slot].process);
        self.stop_at_point(slot, &mut op);
        let Some(draft) = events::invocation(worker, process, &op) else {
            return;
        };
        let event = self.record(draft);
        let stamp = crate::record::Stamp {
            index: event.index,
            time: event.time,
        };
        if matches!(op, Op::Write(_) | Op::Add(_)) {
            self.next_value += 1;
        }
        self.figures.requests += 1;
        let name = op.name();
        if let Op::Acquire(_) = op {
            self.recovery.asked = true;
            let key = self.slots[slot].key.clone();
            self.board.waits(&key, worker as u32);
            self.cue_of(fencepost_nemesis::schedule::CueKind::Acquire, slot);
        }
        let asked = Asked {
            op: name,
            slot: Some(slot),
            stamp,
            budget: self.patience(),
        };
        match self.staff.sessions[worker].as_mut() {
            Some(session) => drop(session.ask(op, asked)),
            None => self.answered(slot, name, &Answer::Info("its worker is gone".into())),
        }
    }

    pub(super) fn proceed(&mut self, slot: usize, next: Next) {
        match next {
            Next::Ask(op) => self.ask(slot, op),
            Next::Work => {
                let (work, process) = (self.slots[slot].work, self.slots[slot].process);
                self.timers
                    .set(self.rec.now() + work, Timer::Worked { slot, process });
            }
            Next::Over { whole } => self.cycle_over(slot, whole),
        }
    }

    fn cycle_over(&mut self, slot: usize, whole: bool) {
        match self.slot_role(slot) {
            Role::Load => {
                self.figures.ended += 1;
                if whole {
                    self.figures
                        .cycled(self.rec.now() - self.slots[slot].cycle_start);
                }
                self.idle.push_back(slot);
            }
            Role::Story => self.tell_story_later(slot),
        }
    }

    /// The calm part is longer where a service that is asked grants nothing: until it has taken longer than it may, so
    /// that a short one hides no outage.
    pub(super) fn calm_is_over(&self, in_phase: i64) -> bool {
        let Recovery { asked, granted } = self.recovery;
        let enough = self.cfg.recovery.saturating_add(self.patience());
        in_phase >= self.cfg.calm && (granted || !asked || in_phase > enough)
    }

    /// Whether no client has anything under way.
    pub(super) fn at_rest(&self) -> bool {
        self.acting == 0
            && self
                .slots
                .iter()
                .all(|s| matches!(s.step, Step::Idle | Step::Parked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(seed: u64) -> Vec<Arrival> {
        let mut p = Pacer::new(100.0, 4, seed);
        p.start(1000);
        std::iter::from_fn(|| p.take(1000 + 1_000_000_000)).collect()
    }

    #[test]
    fn a_second_holds_as_many_arrivals_as_the_rate_says() {
        let all = times(7);
        assert!((100..=101).contains(&all.len()), "{}", all.len());
        assert!(all.windows(2).all(|w| w[0].at <= w[1].at));
        assert!(all.iter().all(|a| a.lock < 4));
        assert_eq!(all, times(7));
        assert_ne!(all, times(8));
    }

    #[test]
    fn no_rate_no_arrivals() {
        let mut p = Pacer::new(0.0, 4, 1);
        p.start(0);
        assert_eq!(p.take(i64::MAX), None);
    }
}
