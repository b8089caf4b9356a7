//! Namespaces as this node enforces them: their limits and their rates.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use axum::http::StatusCode;

use super::ApiError;
use crate::Config;
use crate::config::Limits;

/// The namespaces of a node.
#[derive(Debug)]
pub(crate) struct Spaces {
    named: BTreeMap<String, Space>,
    /// Limits of every namespace where none is named.
    open: Option<Limits>,
}

#[derive(Debug)]
struct Space {
    limits: Limits,
    rate: Option<Rate>,
}

impl Spaces {
    /// As the configuration has them.
    pub(crate) fn of(config: &Config) -> Self {
        let space = |name: &String| {
            let limits = config.limits(name)?;
            let rate = limits.ops_per_s.map(Rate::new);
            Some((name.clone(), Space { limits, rate }))
        };
        let named: BTreeMap<_, _> = config.namespaces.keys().filter_map(space).collect();
        let open = named.is_empty().then(|| config.limits("")).flatten();
        Spaces { named, open }
    }

    /// The limits of a namespace.
    pub(super) fn limits(&self, namespace: &str) -> Result<Limits, ApiError> {
        let named = self.named.get(namespace).map(|space| space.limits);
        named.or(self.open).ok_or_else(|| {
            let message =
                format!("there is no namespace {namespace}; an administrator must add it");
            ApiError::new(StatusCode::NOT_FOUND, "no_namespace", message)
        })
    }

    /// Counts one operation against the namespace's rate.
    pub(super) fn count(&self, namespace: &str) -> Result<(), ApiError> {
        let rate = self
            .named
            .get(namespace)
            .and_then(|space| space.rate.as_ref());
        let Some(wait_ms) = rate.and_then(|rate| rate.take(Instant::now())) else {
            return Ok(());
        };
        let message = format!("namespace {namespace} is over its operations a second");
        Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message).later(wait_ms))
    }
}

/// A token bucket that holds a second's operations.
#[derive(Debug)]
struct Rate {
    per_s: f64,
    left: Mutex<(Option<Instant>, f64)>,
}

impl Rate {
    fn new(per_s: u32) -> Self {
        let per_s = f64::from(per_s);
        Rate {
            per_s,
            left: Mutex::new((None, per_s)),
        }
    }

    /// Takes one, or says in how many ms there will be one.
    fn take(&self, now: Instant) -> Option<u64> {
        let mut state = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let since = state.0.replace(now).unwrap_or(now);
        let refill = now.saturating_duration_since(since).as_secs_f64() * self.per_s;
        state.1 = (state.1 + refill).min(self.per_s);
        if state.1 >= 1.0 {
            state.1 -= 1.0;
            return None;
        }
        Some(((1.0 - state.1) / self.per_s * 1000.0).ceil() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_rate_refuses_what_is_above_it_and_says_when_to_come_back() {
        let (rate, now) = (Rate::new(10), Instant::now());
        assert!((0..10).all(|_| rate.take(now).is_none()));
        assert_eq!(rate.take(now), Some(100));
        let later = now + Duration::from_millis(250);
        assert_eq!([rate.take(later), rate.take(later)], [None, None]);
        assert!(rate.take(later).is_some());
    }
}
