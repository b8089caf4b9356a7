//! Refused greetings in the log: a peer greets some sixteen times a second, and is told of once a minute.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use foldhash::{HashMap, HashMapExt};
use tokio::time::Instant;

use super::PeerError;
use crate::host;

const EVERY: Duration = Duration::from_secs(60);
/// Most that are told of in a minute: a stranger may say any number.
const MOST: usize = 64;

/// When each peer was last told of, for each reason.
pub struct Refusals(Mutex<HashMap<(u64, &'static str), Instant>>);

impl Refusals {
    pub fn new() -> Self {
        Refusals(Mutex::new(HashMap::new()))
    }

    /// Tells of a refusal, unless it told of the same in the last minute.
    pub fn tell(&self, from: u64, error: &PeerError) {
        if self.is_news(from, error) {
            tracing::warn!(%error, "refused a peer; it greets again and again, which is told of once a minute");
        }
    }

    fn is_news(&self, from: u64, error: &PeerError) -> bool {
        let now = host::now();
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, at| now.saturating_duration_since(*at) < EVERY);
        let of = (from, error.reason());
        !told.contains_key(&of) && told.len() < MOST && told.insert(of, now).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_peer_and_reason_is_told_of_once_a_minute() {
        let refusals = Refusals::new();
        let wiped = |from| PeerError::Wiped { from };
        let rolled_back = |now| PeerError::RolledBack {
            from: 1,
            seen: 9,
            now,
        };
        assert!(refusals.is_news(1, &wiped(1)));
        assert!(!refusals.is_news(1, &wiped(1)));
        assert!(refusals.is_news(2, &wiped(2)));
        assert!(refusals.is_news(1, &rolled_back(1)));
        assert!(!refusals.is_news(1, &rolled_back(2)), "the same reason");
        tokio::time::advance(EVERY).await;
        assert!(refusals.is_news(1, &wiped(1)));
        let all = (0..1000).filter(|from| refusals.is_news(*from, &wiped(*from)));
        assert_eq!(all.count(), MOST - 1);
    }
}
