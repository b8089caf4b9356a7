//! Lock clients with one seeded bug each, to prove that the checks see it.
//! One file a bug, and one line in [`REDIS`]. The correct client beside them
//! (`bug` unset) is the fixed twin that must not be flagged.

mod a01;
mod a02;
mod a03;
mod a04;
mod a05;
mod a06;
mod a08;
mod a09;
mod a13;
mod a20;
mod a21;
mod a22;
mod a55;

use std::time::Duration;

use super::{BoxedLock, ConfError, LockContext, param};

/// One seeded bug of a Redis client.
pub struct Bug {
    /// Row of the list of known bugs.
    pub id: &'static str,
    pub about: &'static str,
    new: fn(&LockContext) -> Result<BoxedLock, ConfError>,
}

/// Seeded bugs of clients of one Redis server: `system.params.bug = "A2"`.
pub const REDIS: &[Bug] = &[
    a01::BUG,
    a02::BUG,
    a03::BUG,
    a04::BUG,
    a05::BUG,
    a06::BUG,
    a08::BUG,
    a09::BUG,
    a13::BUG,
    a20::BUG,
    a21::BUG,
    a22::BUG,
    a55::BUG,
];

/// Rows that are bugs of whoever holds a lock and not of its client: how the
/// worker treats its leases (`worker::Behaviour`). They fit every system.
pub const HOLDER: &[(&str, &str)] = &[
    ("A10", "the watchdog dies silently after its first renewal"),
    (
        "A26",
        "no deadline of its own: a renewal that hangs hides the loss",
    ),
    ("A27", "a loss is noticed only where the service tells it"),
    ("A34", "the keepalive loop ends silently"),
];

/// Param `gap_ms` (default 0): a pause at the bug's critical place, to meet it
/// more often.
fn gap(cx: &LockContext) -> Result<Duration, ConfError> {
    param(&cx.system.params, "gap_ms", 0).map(Duration::from_millis)
}

/// The Redis client with this bug.
///
/// # Errors
/// An unknown bug; the message lists the known ones.
pub fn redis(id: &str, cx: &LockContext) -> Result<BoxedLock, ConfError> {
    match REDIS.iter().find(|b| b.id == id) {
        Some(bug) => (bug.new)(cx),
        None => {
            let own = REDIS.iter().map(|b| b.id);
            let known: Vec<&str> = own.chain(HOLDER.iter().map(|(id, _)| *id)).collect();
            Err(ConfError(format!(
                "no bug \"{id}\"; known: {}",
                known.join(", ")
            )))
        }
    }
}

/// The seeded bug that a client itself has, or `None`: those of [`HOLDER`] are
/// the worker's.
///
/// # Errors
/// A parameter of the wrong kind.
pub fn of_client(cx: &LockContext) -> Result<Option<String>, ConfError> {
    let bug: Option<String> = param(&cx.system.params, "bug", None)?;
    Ok(bug.filter(|b| HOLDER.iter().all(|(id, _)| id != b)))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
