//! Random numbers, from the system or, in a simulation, from its seed; and the runtime that gives openraft the same.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use openraft::async_runtime::AsyncRuntime;
use openraft::rt::OptionalSend;
use openraft_rt_tokio::{TokioInstant, TokioMpsc, TokioMutex, TokioOneshot, TokioRuntime};
#[cfg(test)]
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::{Rng, TryRng};

use crate::host;
#[cfg(test)]
use crate::sim::watch::OrderedWatch as Watch;
#[cfg(not(test))]
use openraft_rt_tokio::TokioWatch as Watch;

thread_local! {
    static SEEDED: RefCell<Option<SmallRng>> = const { RefCell::new(None) };
}

/// Makes this thread's numbers follow from `seed`.
#[cfg(test)]
pub fn seed(seed: u64) {
    SEEDED.with(|rng| *rng.borrow_mut() = Some(SmallRng::seed_from_u64(seed)));
}

/// A random number.
pub fn random() -> u64 {
    SEEDED
        .with(|rng| rng.borrow_mut().as_mut().map(Rng::next_u64))
        .unwrap_or_else(rand::random)
}

/// [`random`] as a generator.
#[derive(Debug, Clone, Copy)]
pub struct Chance;

impl TryRng for Chance {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(random() as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(random())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&random().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

/// Tokio, but with [`Chance`] for election timeouts.
#[derive(Debug)]
pub struct Runtime(TokioRuntime);

impl AsyncRuntime for Runtime {
    type JoinError = tokio::task::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = tokio::task::JoinHandle<T>;
    type Sleep = tokio::time::Sleep;
    type Instant = TokioInstant;
    type TimeoutError = tokio::time::error::Elapsed;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = tokio::time::Timeout<T>;
    type ThreadLocalRng = Chance;
    type Mpsc = TokioMpsc;
    type Watch = Watch;
    type Oneshot = TokioOneshot;
    type Mutex<T: OptionalSend + 'static> = TokioMutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        let task = TokioRuntime::spawn(host::scoped(future));
        host::spawned(&task);
        task
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        TokioRuntime::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: Self::Instant,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(join_error)
    }

    fn thread_rng() -> Chance {
        Chance
    }

    fn new(threads: usize) -> Self {
        Runtime(TokioRuntime::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }
}
