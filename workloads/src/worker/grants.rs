//! The grants of one worker: what it claims, and until when.
//!
//! A grant is believed held from its answer to its local deadline (when the
//! lease was last sent for + the TTL granted − a margin), its loss or its
//! release. No clock but this process's monotonic one is read.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::locks::Grant;
use crate::protocol::{Claim, WorkerEvent};

/// Part of a lease that a client gives up at its end, so that it stops before
/// the service does: 5 % of the TTL and 10 ms, unless configured otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Margin(pub Option<Duration>);

impl Margin {
    fn of(self, ttl: Duration) -> Duration {
        self.0.unwrap_or(ttl / 20 + Duration::from_millis(10))
    }
}

/// One grant of one client.
#[derive(Clone)]
pub struct Held {
    pub grant: Grant,
    pub client: u32,
    /// `None`: no lease, held until lost or released.
    pub deadline: Option<Instant>,
    pub live: bool,
    /// Ends the watchdog.
    pub stop: CancellationToken,
}

/// All grants by owner.
pub struct Grants {
    held: HashMap<Arc<str>, Held>,
    margin: Margin,
}

impl Grants {
    pub fn new(margin: Margin) -> Self {
        Grants {
            held: HashMap::new(),
            margin,
        }
    }

    fn deadline(&self, sent: Instant, ttl: Option<Duration>) -> Option<Instant> {
        ttl.map(|ttl| sent + ttl.saturating_sub(self.margin.of(ttl)))
    }

    /// Notes a new grant and answers the token that ends its watchdog.
    pub fn insert(&mut self, client: u32, grant: Grant) -> CancellationToken {
        let stop = CancellationToken::new();
        let deadline = self.deadline(grant.sent, grant.ttl);
        let held = Held {
            grant,
            client,
            deadline,
            live: true,
            stop: stop.clone(),
        };
        self.held.insert(held.grant.owner.clone(), held);
        stop
    }

    /// Moves a live grant's deadline after a renewal that was sent at `sent`.
    pub fn extend(&mut self, owner: &str, sent: Instant, ttl: Duration) {
        let deadline = self.deadline(sent, Some(ttl));
        if let Some(h) = self.held.get_mut(owner)
            && h.live
            && deadline > h.deadline
        {
            (h.grant.sent, h.grant.ttl, h.deadline) = (sent, Some(ttl), deadline);
        }
    }

    pub fn get(&self, owner: &str) -> Option<&Held> {
        self.held.get(owner)
    }

    /// Whether the grant is believed held at `now`.
    pub fn holds(&self, owner: &str, now: Instant) -> bool {
        self.held
            .get(owner)
            .is_some_and(|h| h.live && h.deadline.is_none_or(|d| now < d))
    }

    /// Forgets a grant that is to be released. The caller still gets one that
    /// was lost: the service may see it otherwise.
    pub fn remove(&mut self, owner: &str) -> Option<Grant> {
        let held = self.held.remove(owner)?;
        held.stop.cancel();
        Some(held.grant)
    }

    /// Gives up one grant; `None` if it was not believed held.
    pub fn lose(&mut self, owner: &str, reason: &str, after: u64) -> Option<WorkerEvent> {
        let held = self.held.get_mut(owner).filter(|h| h.live)?;
        held.live = false;
        held.stop.cancel();
        Some(WorkerEvent::Lost {
            key: held.grant.key.clone(),
            owner: held.grant.owner.clone(),
            fence: held.grant.fence,
            reason: reason.into(),
            after,
        })
    }

    /// Gives up every grant whose deadline has passed.
    pub fn sweep(&mut self, now: Instant, after: u64) -> Vec<WorkerEvent> {
        let mut over: Vec<Arc<str>> = self
            .held
            .values()
            .filter(|h| h.live && h.deadline.is_some_and(|d| d <= now))
            .map(|h| h.grant.owner.clone())
            .collect();
        over.sort();
        over.iter()
            .filter_map(|o| self.lose(o, "deadline", after))
            .collect()
    }

    /// What is believed held, deadlines not looked at: sweep first.
    pub fn claims(&self) -> Vec<Claim> {
        self.held
            .values()
            .filter(|h| h.live)
            .map(|h| Claim {
                key: h.grant.key.clone(),
                owner: h.grant.owner.clone(),
                fence: h.grant.fence,
            })
            .collect()
    }

    /// Takes every grant out, live ones first to be released at `close`.
    pub fn drain(&mut self) -> Vec<Held> {
        self.held
            .drain()
            .map(|(_, h)| {
                h.stop.cancel();
                h
            })
            .filter(|h| h.live)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::protocol::{Fence, Mode};

    const TTL: Duration = Duration::from_millis(1000);

    fn grant(owner: &str, sent: Instant, ttl: Option<Duration>) -> Grant {
        Grant {
            key: "L0".into(),
            mode: Mode::Exclusive,
            owner: owner.into(),
            fence: Some(Fence(1)),
            ttl,
            sent,
        }
    }

    #[test]
    fn a_lease_ends_a_margin_before_the_service_ends_it() {
        let mut g = Grants::new(Margin(None));
        let t = Instant::now();
        g.insert(0, grant("a", t, Some(TTL)));
        let end = t + Duration::from_millis(940); // 1000 - 5 % - 10
        assert!(g.holds("a", end - Duration::from_nanos(1)));
        assert!(!g.holds("a", end));
        assert!(g.sweep(end - Duration::from_nanos(1), 7).is_empty());
        assert_eq!(g.sweep(end, 7).len(), 1);
        assert!(g.sweep(end, 7).is_empty(), "lost once only");
        assert!(g.claims().is_empty());
    }

    #[test]
    fn a_renewal_counts_from_its_sending_and_revives_nothing() {
        let mut g = Grants::new(Margin(Some(Duration::ZERO)));
        let t = Instant::now();
        g.insert(0, grant("a", t, Some(TTL)));
        g.extend("a", t + TTL / 2, TTL);
        assert!(g.holds("a", t + TTL));
        assert!(!g.holds("a", t + TTL + TTL / 2));
        g.lose("a", "not-held", 3).unwrap();
        g.extend("a", t + TTL, TTL);
        assert!(!g.holds("a", t + TTL));
        assert!(g.lose("a", "again", 3).is_none());
        assert!(
            g.remove("a").is_some(),
            "a lost grant can still be released"
        );
        assert!(g.remove("a").is_none());
    }

    #[test]
    fn without_a_lease_only_loss_and_release_end_it() {
        let mut g = Grants::new(Margin(None));
        let t = Instant::now();
        let stop = g.insert(0, grant("a", t, None));
        assert!(g.sweep(t + TTL * 1000, 1).is_empty());
        assert_eq!(g.claims().len(), 1);
        g.remove("a");
        assert!(stop.is_cancelled());
    }
}
