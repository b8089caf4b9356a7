//! Leases that belong to a session and not to a grant.

use std::time::{Duration, Instant};

/// A session, kept alive by the grants that need it.
#[derive(Clone, Debug)]
pub struct Session<Id> {
    pub id: Id,
    pub ttl: Duration,
    /// When the last answered keepalive, or the opening, was sent.
    pub sent: Instant,
}

impl<Id> Session<Id> {
    /// Whether a new grant can rest on it without a keepalive first.
    pub fn is_fresh(&self) -> bool {
        self.sent.elapsed() < self.ttl / 2
    }

    /// When the next keepalive is due.
    pub fn due(&self) -> Instant {
        self.sent + self.ttl / 3
    }

    /// `ttl` and `sent` of a grant whose acquire began at `began`: what was left
    /// of the session then. The service counts from the last keepalive, not from
    /// the grant, and a controller counts from the acquire's invocation.
    pub fn lease(&self, began: Instant) -> (Duration, Instant) {
        let end = self.sent + self.ttl;
        let left = end.saturating_duration_since(began);
        (self.ttl.min(left), self.sent.max(began))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_promises_no_more_than_its_session_has_left() {
        let sent = Instant::now();
        let ttl = Duration::from_secs(2);
        let session = Session { id: (), ttl, sent };
        let later = Duration::from_millis(700);
        assert_eq!(session.lease(sent + later), (ttl - later, sent + later));
        let earlier = sent.checked_sub(later).unwrap_or(sent);
        assert_eq!(
            session.lease(earlier),
            (ttl, sent),
            "kept alive while waiting"
        );
    }
}
