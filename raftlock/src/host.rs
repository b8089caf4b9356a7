//! What a process has from the system under it: its clocks, and the tasks that end with it. A simulation takes hold here.

use std::future::Future;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::task::JoinHandle;
use tokio::time::Instant;

#[cfg(test)]
use crate::sim::process;

/// The monotonic clock of this machine.
pub fn now() -> Instant {
    #[cfg(test)]
    if let Some(now) = process::now() {
        return now;
    }
    Instant::now()
}

/// Sleeps until this machine's monotonic clock says `at`.
pub async fn sleep_until(at: Instant) {
    #[cfg(test)]
    let at = process::true_time(at);
    tokio::time::sleep_until(at).await;
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
