//! The controller's core: one thread that owns time, the history and all pipes.
//!
//! Everything that is recorded passes through it, so index and stamp need no lock; everything
//! that is sent leaves after the batch of events before it was handed to the OS.

mod faults;
mod figures;
mod hear;
mod load;
mod poll;
mod slot;
mod staff;
#[cfg(test)]
mod tests;
mod timers;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use fencepost_nemesis::schedule::{Action, Scheduler};
use fencepost_workloads::protocol::{Init, Mode};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use tokio::sync::{mpsc as tokio_mpsc, oneshot};

use crate::record::{Draft, Recorder};
use crate::scenario::Workload;
use crate::worker::{Link, WorkerError};

pub use figures::{Figures, Progress};
pub use poll::Waker;
pub use staff::Board;

use super::events;
use super::watch::Ended;
use load::Pacer;
use poll::Wakes;
use slot::{Role, Slot};
use staff::Staff;
use timers::Timers;

/// What the core needs to know of a scenario. Times in nanoseconds.
#[derive(Clone, Debug)]
pub struct Settings {
    pub seed: u64,
    pub workers: usize,
    pub clients: u32,
    pub mode: Mode,
    pub permits: Option<u32>,
    /// None where locks have no lease; `ttl` then only sets the pace of pings.
    pub ttl_ms: Option<u64>,
    pub ttl: Duration,
    pub timeout: Duration,
    pub rate: f64,
    pub locks: u32,
    pub workload: Workload,
    pub work: fencepost_nemesis::schedule::Span,
    pub wait: Duration,
    pub duration: i64,
    pub calm: i64,
    /// Longest time that a service may take to grant again once every fault is healed.
    pub recovery: i64,
    pub story: Option<Story>,
    /// Some fault is ended by an event.
    pub events_end_faults: bool,
    /// Where the standard error of workers goes, for messages.
    pub log_dir: std::path::PathBuf,
}

/// Clients set aside for one lock: one of worker 0, one each of the next workers.
#[derive(Clone, Debug)]
pub struct Story {
    pub lock: Arc<str>,
    pub rivals: usize,
    pub work: fencepost_nemesis::schedule::Span,
    pub wait: Duration,
    pub pause: fencepost_nemesis::schedule::Span,
    /// What was released is released once more, before the next cycle.
    pub again: bool,
}

/// What others ask of the core.
pub enum Command {
    /// A worker was started (again).
    Attach {
        worker: usize,
        link: Link,
        init: Box<Init>,
    },
    /// All is set up: the load begins.
    Load,
    /// A fault's report, to be recorded; `holds` says whether something has to be healed later.
    Report {
        report: Box<fencepost_nemesis::Report>,
        holds: bool,
        recorded: Option<oneshot::Sender<()>>,
    },
    /// Nothing holds under this id any more.
    NothingToHeal {
        id: String,
    },
    /// This worker is about to be killed by a fault.
    ExpectExit {
        worker: usize,
    },
    Exited {
        worker: usize,
        how: String,
    },
    /// A server ended, and no fault ended it.
    NodeEnded(Box<Ended>),
    /// End in order, now.
    Interrupt,
    /// This entry is surely violated, and the scenario wants to end then.
    Violated(&'static str),
    /// Something that the run rests on has failed: end in order.
    Fail(String),
}

/// What the core tells the runner.
#[derive(Debug)]
pub enum Notice {
    /// Every worker answered `init`.
    Ready,
    Act(Action),
}

/// The runner's handle.
#[derive(Clone)]
pub struct CoreHandle {
    commands: mpsc::Sender<Command>,
    waker: Waker,
}

impl CoreHandle {
    /// Hands a command over; after the core's end it has no effect.
    pub fn tell(&self, command: Command) {
        if self.commands.send(command).is_ok() {
            self.waker.wake();
        }
    }
}

/// How a run ended.
pub struct Ending {
    pub recorder: Recorder,
    pub figures: Figures,
    pub interrupted: bool,
    /// The violated check that ended it before its time.
    pub stopped_by: Option<&'static str>,
    /// The first thing that went wrong with the harness or a worker.
    pub failure: Option<String>,
    /// Per worker, what it called itself.
    pub names: Vec<String>,
    pub next_process: u64,
}

/// Longest time that a load goes on for a fault that an event ends.
const OVERTIME: i64 = 30_000_000_000;

/// Longest time for all heals together.
const HEALING: i64 = 90_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    Setup,
    Load,
    /// No fault begins any more; those that hold are healed.
    Healing,
    /// The load goes on without faults.
    Calm,
    Drain,
    Closing,
    Done,
}

pub struct Core {
    cfg: Settings,
    rec: Recorder,
    staff: Staff,
    slots: Vec<Slot>,
    idle: VecDeque<usize>,
    backlog: VecDeque<load::Arrival>,
    pacer: Pacer,
    recovery: load::Recovery,
    timers: Timers,
    scheduler: Scheduler,
    /// Faults whose install or heal is under way.
    acting: usize,
    /// Faults that hold.
    holding: std::collections::BTreeSet<String>,
    board: Arc<Board>,
    phase: Phase,
    phase_since: i64,
    load_began: i64,
    rng: ChaCha8Rng,
    next_process: u64,
    next_value: i64,
    figures: Figures,
    progress: Arc<Progress>,
    notices: tokio_mpsc::UnboundedSender<Notice>,
    commands: mpsc::Receiver<Command>,
    wakes: Wakes,
    interrupted: bool,
    stopped_by: Option<&'static str>,
    failure: Option<String>,
    /// Who is shown every event as it is recorded.
    onlooker: Option<mpsc::Sender<fencepost_history::Event>>,
    /// `schedule.jsonl`, written as it comes about.
    schedule: Box<dyn io::Write + Send>,
    /// The history cannot be written: nothing may be sent any more.
    mute: bool,
}

/// Everything that [`Core::wire`] connects.
pub struct Wiring {
    pub core: Core,
    pub handle: CoreHandle,
    pub notices: tokio_mpsc::UnboundedReceiver<Notice>,
}

impl Core {
    /// # Errors
    /// When the socket pair of its waker cannot be made.
    pub fn wire(
        cfg: Settings,
        rec: Recorder,
        scheduler: Scheduler,
        schedule: Box<dyn io::Write + Send>,
        board: Arc<Board>,
        progress: Arc<Progress>,
    ) -> io::Result<Wiring> {
        let (waker, wakes) = poll::waker()?;
        let (tx, commands) = mpsc::channel();
        let (notices, notices_rx) = tokio_mpsc::unbounded_channel();
        let slots = load::slots(&cfg);
        let core = Core {
            staff: Staff::new(cfg.workers),
            pacer: Pacer::new(cfg.rate, cfg.locks, cfg.seed),
            rng: ChaCha8Rng::seed_from_u64(cfg.seed ^ 0x636f_7265),
            next_process: slots.len() as u64,
            next_value: 1,
            idle: VecDeque::new(),
            backlog: VecDeque::new(),
            recovery: Default::default(),
            timers: Timers::default(),
            acting: 0,
            holding: Default::default(),
            phase: Phase::Setup,
            phase_since: 0,
            load_began: 0,
            figures: Figures::default(),
            interrupted: false,
            stopped_by: None,
            failure: None,
            onlooker: None,
            schedule,
            mute: false,
            cfg,
            rec,
            slots,
            scheduler,
            board,
            progress,
            notices,
            commands,
            wakes,
        };
        Ok(Wiring {
            core,
            handle: CoreHandle {
                commands: tx,
                waker,
            },
            notices: notices_rx,
        })
    }

    /// Shows every event to somebody, from the first on.
    pub fn show_to(&mut self, onlooker: mpsc::Sender<fencepost_history::Event>) {
        self.onlooker = Some(onlooker);
    }

    /// Runs until the workers are gone.
    pub fn run(mut self) -> Ending {
        self.record(events::phase("setup"));
        while self.phase != Phase::Done {
            while let Ok(command) = self.commands.try_recv() {
                self.obey(command);
            }
            let now = self.rec.now();
            self.ring(now);
            self.arrive(now);
            self.step_phase(now);
            self.flush();
            let limit = self.until_next(self.rec.now());
            for worker in self.wakes.wait(&self.staff.sessions, limit) {
                self.hear(worker);
            }
        }
        self.flush();
        Ending {
            recorder: self.rec,
            figures: self.figures,
            interrupted: self.interrupted,
            stopped_by: self.stopped_by,
            failure: self.failure,
            names: self.staff.names(),
            next_process: self.next_process,
        }
    }

    fn record(&mut self, draft: Draft) -> fencepost_history::Event {
        let event = self.rec.record(draft);
        if let Some(onlooker) = &self.onlooker
            && onlooker.send(event.clone()).is_err()
        {
            // It has seen enough.
            self.onlooker = None;
        }
        event
    }

    /// Events first, then the requests that they announce.
    fn flush(&mut self) {
        if !self.mute {
            // The reserve is free after the first failure: the second try usually succeeds.
            if let Err(first) = self.rec.flush() {
                self.fail(first.to_string());
                self.mute = self.rec.flush().is_err();
            }
        }
        self.save_schedule();
        for session in self.staff.sessions.iter_mut().flatten() {
            if self.mute {
                session.hang_up()
            } else {
                session.send()
            }
        }
        let elapsed = if self.load_began == 0 {
            0
        } else {
            self.rec.now() - self.load_began
        };
        self.progress.set(&self.figures, self.phase as u8, elapsed);
    }

    /// Ends the run in order; the first reason is the one that is told.
    fn fail(&mut self, why: String) {
        self.failure.get_or_insert(why);
        self.wind_up();
    }

    fn worker_failed(&mut self, error: WorkerError) {
        self.fail(error.to_string());
    }

    /// No new faults, no new cycles; whatever the phase.
    fn wind_up(&mut self) {
        if self.phase == Phase::Setup {
            self.enter(Phase::Closing);
        } else if self.phase < Phase::Healing {
            self.end_faults();
        }
        self.backlog.clear();
        self.pacer.stop();
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Attach { worker, link, init } => self.attach(worker, link, init),
            Command::Load => self.begin_load(),
            Command::Report {
                report,
                holds,
                recorded,
            } => self.reported(&report, holds, recorded),
            Command::NothingToHeal { id } => self.nothing_to_heal(&id),
            Command::ExpectExit { worker } => self.staff.expect_exit(worker),
            Command::Exited { worker, how } => self.exited(worker, &how),
            Command::NodeEnded(ended) => {
                self.progress
                    .set_note(format!("{} ended by itself: {}", ended.node, ended.how));
                self.record(events::node_exit(&ended));
            }
            Command::Interrupt => {
                if !self.interrupted {
                    self.interrupted = true;
                    self.record(events::phase("interrupted"));
                    self.wind_up();
                }
            }
            Command::Violated(check) => self.stop_at(check),
            Command::Fail(why) => self.fail(why),
        }
    }

    /// Nothing more can be learned of this check: ends the run in order, unless it is ending already.
    fn stop_at(&mut self, check: &'static str) {
        if self.phase < Phase::Drain && !self.interrupted && self.failure.is_none() {
            self.stopped_by = Some(check);
            self.record(events::fail_fast(check));
            self.wind_up();
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.phase_since = self.rec.now();
        match phase {
            Phase::Load => drop(self.record(events::phase("load"))),
            Phase::Healing => drop(self.record(events::phase("faults-end"))),
            Phase::Calm => {
                self.recovery = Default::default();
                self.record(events::phase("healed"));
            }
            Phase::Drain => {
                self.figures.load_ns = self.phase_since - self.load_began;
                self.figures.due = self.pacer.due();
                self.record(events::phase("drain"));
                self.pacer.stop();
                self.backlog.clear();
            }
            Phase::Closing => self.close_workers(),
            Phase::Setup | Phase::Done => {}
        }
    }

    fn step_phase(&mut self, now: i64) {
        let hurried = self.failure.is_some() || self.interrupted || self.stopped_by.is_some();
        let in_phase = now - self.phase_since;
        match self.phase {
            Phase::Setup => {}
            Phase::Load if self.load_is_over(now) => self.end_faults(),
            Phase::Load => {}
            Phase::Healing if self.acting == 0 => self.enter(Phase::Calm),
            Phase::Healing if in_phase > HEALING => {
                self.acting = 0;
                self.fail("faults were not healed within 90 s".into());
                self.enter(Phase::Calm);
            }
            Phase::Healing => {}
            Phase::Calm if hurried || self.calm_is_over(in_phase) => self.enter(Phase::Drain),
            Phase::Calm => {}
            Phase::Drain => {
                let limit = if hurried {
                    self.patience().min(5_000_000_000)
                } else {
                    self.patience()
                };
                if self.staff.all_gone() || self.at_rest() || in_phase > limit || self.mute {
                    self.abandon_all("no answer when the run ended");
                    self.enter(Phase::Closing);
                }
            }
            Phase::Closing => {
                if self.staff.all_gone() || in_phase > 3_000_000_000 {
                    self.phase = Phase::Done;
                }
            }
            Phase::Done => {}
        }
    }

    /// The load lasts as long as the scenario says, and a little longer where a fault still waits for
    /// the event that ends it: a slow machine must not decide what a scenario shows.
    fn load_is_over(&self, now: i64) -> bool {
        let over = now - self.load_began - self.cfg.duration;
        over >= 0 && (!self.cfg.events_end_faults || self.holding.is_empty() || over > OVERTIME)
    }

    /// Longest time that any one operation may take before its worker counts as hung.
    fn patience(&self) -> i64 {
        let wait = self
            .cfg
            .story
            .as_ref()
            .map_or(self.cfg.wait, |s| s.wait.max(self.cfg.wait));
        let work = crate::scenario::longest(&self.cfg.work, self.cfg.ttl);
        (wait + work + self.cfg.timeout * 3 + Duration::from_secs(2)).as_nanos() as i64
    }

    fn slot_role(&self, slot: usize) -> Role {
        self.slots[slot].role
    }
}

/// Shared text of a lock's name.
fn lock_name(n: u32) -> Arc<str> {
    format!("L{n}").into()
}
