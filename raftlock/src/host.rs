//! What a process has from the system under it: its clocks, and the tasks that end with it. A simulation takes hold here.

use std::future::Future;
#[cfg(not(test))]
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, Timeout};

#[cfg(test)]
use crate::sim::process;

/// The latest that a clock has shown.
#[derive(Debug, Default)]
pub struct Latest(AtomicU64);

impl Latest {
    /// Time since the clock's beginning, which now is `shown`: never less than an earlier answer.
    pub fn of(&self, shown: Duration) -> Duration {
        let nanos = u64::try_from(shown.as_nanos()).unwrap_or(u64::MAX);
        let earlier = self.0.load(Ordering::Relaxed);
        // Read first: most readings of most threads would not change it.
        let latest = if nanos > earlier {
            self.0.fetch_max(nanos, Ordering::Relaxed).max(nanos)
        } else {
            earlier
        };
        Duration::from_nanos(latest)
    }
}

/// The monotonic clock of this machine. Where the system's steps back all the same (a virtual machine that moved, an injected
/// fault), this one stands still until that has caught up: Raft may not see time run back, and tokio's timers stand still too.
pub fn now() -> Instant {
    #[cfg(not(test))]
    static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::new);
    // A test may advance tokio's time, which is that of its own runtime.
    #[cfg(test)]
    thread_local!(static CLOCK: Clock = Clock::new());
    #[cfg(test)]
    return process::now().unwrap_or_else(|| CLOCK.with(Clock::now));
    #[cfg(not(test))]
    CLOCK.now()
}

struct Clock {
    begun: Instant,
    latest: Latest,
}

impl Clock {
    fn new() -> Self {
        let (begun, latest) = (Instant::now(), Latest::default());
        Clock { begun, latest }
    }

    fn now(&self) -> Instant {
        let shown = Instant::now().saturating_duration_since(self.begun);
        self.begun + self.latest.of(shown)
    }
}

/// When tokio's clock will show what this machine's will show at `at`.
fn true_time(at: Instant) -> Instant {
    #[cfg(test)]
    let at = process::true_time(at);
    at
}

/// Sleeps until this machine's monotonic clock says `at`.
pub fn sleep_until(at: Instant) -> Sleep {
    tokio::time::sleep_until(true_time(at))
}

/// Sleeps so long by this machine's monotonic clock. Tokio's own takes a time that it has already seen for past, and would
/// not sleep at all after the clock stepped back.
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(after(duration))
}

/// The future, until this machine's monotonic clock says `at`.
pub fn timeout_at<F: Future>(at: Instant, future: F) -> Timeout<F> {
    tokio::time::timeout_at(true_time(at), future)
}

/// The future, for so long at most; see [`sleep`].
pub fn timeout<F: Future>(duration: Duration, future: F) -> Timeout<F> {
    timeout_at(after(duration), future)
}

fn after(duration: Duration) -> Instant {
    let now = now();
    // As good as never, as tokio has it.
    now.checked_add(duration)
        .unwrap_or_else(|| now + Duration::from_secs(86_400 * 365 * 30))
}

/// The wall clock, ms since the Unix epoch: for display, never compared.
pub fn wall_ms() -> u64 {
    #[cfg(test)]
    if let Some(ms) = process::wall_ms() {
        return ms;
    }
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

/// The future, as a part of this process: in a simulation it stands still or dies with it.
#[cfg(not(test))]
pub fn scoped<F: Future>(future: F) -> F {
    future
}

/// The future, as a part of the simulated process that runs now.
#[cfg(test)]
pub fn scoped<F: Future>(future: F) -> process::Scoped<F> {
    process::Scoped::new(future)
}

/// A task that nobody awaits was started: in a simulation it ends with the process.
pub fn spawned<T>(task: &JoinHandle<T>) {
    #[cfg(test)]
    process::spawned(task.abort_handle());
    let _ = task;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_steps_back_stands_still_until_it_has_caught_up() {
        let clock = Latest::default();
        let shown = [0, 100, 40, 99, 101, 101, 7].map(Duration::from_millis);
        let seen = shown.map(|shown| clock.of(shown).as_millis());
        assert_eq!(seen, [0, 100, 100, 100, 101, 101, 101]);
    }
}
