//! Seeded bugs: places where the simulation can make the service wrong, to prove that its checks look. Outside of tests
//! every one is off at compile time.

/// A bug that can be seeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code))]
pub enum Flaw {
    /// The log answers before it is on disk.
    SkipSync,
    /// Votes are not written.
    ForgetVote,
    /// A deposed leader goes on answering keepalives.
    KeepaliveWithoutQuorum,
    /// A new leader does not extend sessions: it lets them expire at once.
    NoExtension,
    /// Tokens come from a counter that begins anew in every process.
    TokenFromMemory,
    /// A release frees the lock whoever asks.
    ReleaseByAnyone,
    /// A waiter whose session died is granted all the same.
    GrantToDead,
    /// An exclusive lock is granted beside another holder.
    AdmitSecond,
    /// Requests are applied twice when they are repeated.
    NoDedup,
    /// A session's end frees nothing.
    KeepOnExpiry,
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
