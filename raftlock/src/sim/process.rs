//! A simulated process: its tasks stand still while it is paused and are dropped when it is killed; its clocks run at
//! their own rate.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::host::Latest;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Process>>> = const { RefCell::new(None) };
}

/// How a machine's clocks differ from true time.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// Seconds that it counts in a true one.
    pub rate: f64,
    /// What its wall clock shows at the simulation's start, ms.
    pub wall_ms: u64,
    /// How far its monotonic clock was set back, which no machine should do.
    pub behind: Duration,
}

struct State {
    dead: bool,
    paused: bool,
    parked: Vec<Waker>,
    tasks: Vec<AbortHandle>,
    clock: Clock,
}

/// One run of a program on a machine.
pub struct Process {
    /// The machine's number in the network.
    pub machine: u16,
    start: Instant,
    latest: Latest,
    state: Mutex<State>,
}

impl Process {
    /// A process that runs. `start` is when the simulation began.
    pub fn new(machine: u16, start: Instant, clock: Clock) -> Arc<Self> {
        let state = State {
            dead: false,
            paused: false,
            parked: Vec::new(),
            tasks: Vec::new(),
            clock,
        };
        Arc::new(Process {
            machine,
            start,
            latest: Latest::default(),
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a task of this process.
    pub fn spawn(self: &Arc<Self>, future: impl Future<Output = ()> + Send + 'static) {
        let scoped = Scoped {
            process: Some(Arc::clone(self)),
            inner: Box::pin(future),
        };
        let task = tokio::spawn(scoped);
        self.state().tasks.push(task.abort_handle());
    }

    /// Ends it as SIGKILL does: no task of it is polled again.
    pub fn kill(&self) {
        let tasks = {
            let mut state = self.state();
            state.dead = true;
            std::mem::take(&mut state.tasks)
        };
        for task in tasks {
            task.abort();
        }
    }

    /// Stands still (SIGSTOP), or goes on.
    pub fn pause(&self, paused: bool) {
        let parked = {
            let mut state = self.state();
            state.paused = paused;
            if paused {
                Vec::new()
            } else {
                std::mem::take(&mut state.parked)
            }
        };
        parked.into_iter().for_each(Waker::wake);
    }

    /// Was it killed?
    pub fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// Sets the wall clock forward or back.
    pub fn step_wall(&self, ms: i64) {
        let mut state = self.state();
        state.clock.wall_ms = state.clock.wall_ms.saturating_add_signed(ms);
    }

    /// Sets the monotonic clock back.
    pub fn step_back(&self, by: Duration) {
        self.state().clock.behind += by;
    }

    /// What its monotonic clock shows.
    fn shown(&self) -> Duration {
        let Clock { rate, behind, .. } = self.state().clock;
        let passed = Instant::now().saturating_duration_since(self.start);
        passed.mul_f64(rate).saturating_sub(behind)
    }

    fn true_time(&self, local: Instant) -> Instant {
        let Clock { rate, behind, .. } = self.state().clock;
        let shown = local.saturating_duration_since(self.start);
        self.start + (shown + behind).div_f64(rate)
    }
}

fn current() -> Option<Arc<Process>> {
    CURRENT.with_borrow(Clone::clone)
}

/// The machine whose process is being polled.
pub fn machine() -> u16 {
    current().map_or(0, |process| process.machine)
}

/// Is the process that is being polled, or whose parts are being dropped, gone? False outside of processes.
pub fn owner() -> Option<Arc<Process>> {
    current()
}

/// The monotonic clock of the current process.
pub fn now() -> Option<Instant> {
    current().map(|process| process.start + process.latest.of(process.shown()))
}

/// When the current process's clock will show `local`.
pub fn true_time(local: Instant) -> Instant {
    current().map_or(local, |process| process.true_time(local))
}

/// The wall clock of the current process.
pub fn wall_ms() -> Option<u64> {
    let process = current()?;
    let Clock { rate, wall_ms, .. } = process.state().clock;
    let passed = Instant::now().saturating_duration_since(process.start);
    Some(wall_ms + passed.mul_f64(rate).as_millis() as u64)
}

/// A task of the current process that would outlive it otherwise.
pub fn spawned(task: AbortHandle) {
    if let Some(process) = current() {
        process.state().tasks.push(task);
    }
}

/// Time since the simulation began, as nobody in it knows it.
pub fn since(start: Instant) -> Duration {
    Instant::now().saturating_duration_since(start)
}

/// A future that belongs to a process.
pub struct Scoped<F> {
    process: Option<Arc<Process>>,
    inner: Pin<Box<F>>,
}

impl<F> Scoped<F> {
    /// A part of the current process.
    pub fn new(future: F) -> Self {
        Scoped {
            process: current(),
            inner: Box::pin(future),
        }
    }
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Some(process) = self.process.clone() else {
            return self.inner.as_mut().poll(cx);
        };
        {
            let mut state = process.state();
            if state.dead {
                return Poll::Pending;
            }
            if state.paused {
                state.parked.push(cx.waker().clone());
                return Poll::Pending;
            }
        }
        let before = CURRENT.replace(Some(process));
        let polled = self.inner.as_mut().poll(cx);
        CURRENT.set(before);
        polled
    }
}
