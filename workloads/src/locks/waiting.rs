//! Waiting for a busy lock by trying again after a random delay.

use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{CallError, ConfError, Grant, LockContext, param};

/// Seeded retry delays of one client.
pub struct Retry {
    rng: std::sync::Mutex<StdRng>,
    mean: Duration,
}

impl Retry {
    /// `retry_ms` (default 20) is the mean; delays are uniform from half of it
    /// to one and a half.
    ///
    /// # Errors
    /// A parameter of the wrong kind.
    pub fn from(cx: &LockContext) -> Result<Self, ConfError> {
        let mean = Duration::from_millis(param(&cx.system.params, "retry_ms", 20)?);
        let own = (u64::from(cx.worker) << 32) | u64::from(cx.client);
        let rng = StdRng::seed_from_u64(cx.seed ^ own.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Ok(Retry {
            rng: std::sync::Mutex::new(rng),
            mean,
        })
    }

    /// Begins to wait for at most `wait`.
    pub fn within(&self, wait: Duration) -> Waiting<'_> {
        Waiting {
            retry: self,
            until: Instant::now() + wait,
        }
    }

    /// Tries until one try grants, or `wait` is over: busy.
    ///
    /// # Errors
    /// That, or what a try says.
    pub async fn until_granted<F>(
        &self,
        wait: Duration,
        mut once: impl FnMut() -> F,
    ) -> Result<Grant, CallError>
    where
        F: Future<Output = Result<Option<Grant>, CallError>>,
    {
        let waiting = self.within(wait);
        loop {
            if let Some(grant) = once().await? {
                return Ok(grant);
            }
            if !waiting.again().await {
                return Err(CallError::busy());
            }
        }
    }

    fn delay(&self) -> Duration {
        let factor = {
            let mut rng = self
                .rng
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            rng.random_range(0.5..1.5)
        };
        self.mean.mul_f64(factor)
    }
}

/// One wait.
pub struct Waiting<'a> {
    retry: &'a Retry,
    until: Instant,
}

impl Waiting<'_> {
    /// Sleeps until the next try; false when the time is up.
    pub async fn again(&self) -> bool {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        tokio::time::sleep(self.retry.delay().min(left)).await;
        true
    }
}
