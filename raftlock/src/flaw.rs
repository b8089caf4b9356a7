//! Seeded bugs: places where the simulation can make the service wrong, to prove that its checks look. Outside of tests
//! every one is off at compile time.

/// A bug that can be seeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code))]
pub enum Flaw {
    /// The log answers before it is on disk.
    SkipSync,
    /// Votes are told before they are on disk.
    ForgetVote,
    /// A deposed leader goes on answering keepalives.
    KeepaliveWithoutQuorum,
    /// A new epoch is forgotten: its leader does not extend sessions, it lets them expire at once.
    NoExtension,
    /// Tokens come from a counter that begins anew in every process.
    TokenFromMemory,
    /// A release frees the lock whoever asks.
    ReleaseByAnyone,
    /// A waiter whose session died is granted all the same.
    GrantToDead,
    /// Each replica looks at its own clock when it applies an expiry.
    ClockInApply,
    /// Requests are applied anew when they are repeated.
    NoDedup,
    /// Snapshots are restored without their sessions.
    SnapshotWithoutSessions,
}

#[cfg(test)]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Flaw>> = const { std::cell::Cell::new(None) };
}

/// Seeds a bug in this thread.
#[cfg(test)]
pub fn seed(flaw: Option<Flaw>) {
    ACTIVE.with(|active| active.set(flaw));
}

/// Is this bug seeded?
#[cfg(test)]
pub fn active(flaw: Flaw) -> bool {
    ACTIVE.with(|active| active.get() == Some(flaw))
}

/// Never, outside of tests.
#[cfg(not(test))]
pub const fn active(_: Flaw) -> bool {
    false
}

/// For [`Flaw::ClockInApply`]: when this process applied each session's opening, and its TTL.
#[cfg(test)]
#[derive(Default)]
pub struct OwnClock(std::sync::Mutex<std::collections::BTreeMap<u64, (tokio::time::Instant, u32)>>);

#[cfg(test)]
impl OwnClock {
    /// The batch, without the expiries for which it is too early by this process's own clock.
    pub fn apply(&self, batch: &crate::group::Batch) -> crate::group::Batch {
        use crate::machine::Op;
        let mut batch = batch.clone();
        let Ok(mut opened) = self.0.lock() else {
            return batch;
        };
        let now = crate::host::now();
        for op in &mut batch.ops {
            match op {
                Op::Open {
                    session, ttl_ms, ..
                } => drop(opened.insert(*session, (now, *ttl_ms))),
                Op::Expire { session, .. } if active(Flaw::ClockInApply) => {
                    let age = opened
                        .get(session)
                        .map(|(at, ttl)| (now.duration_since(*at), *ttl));
                    if age.is_none_or(|(age, ttl)| age.as_millis() < u128::from(ttl)) {
                        *op = Op::Lead { term: 0 };
                    }
                }
                _ => {}
            }
        }
        batch
    }
}
