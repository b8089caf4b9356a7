//! Lock clients with one seeded bug each, to prove that the checks see it.
//! One file a bug, and one line in [`REDIS`] or [`POSTGRES`]; those that are a few words of a
//! client ([`INLINE`]) or of the worker ([`HOLDER`]) are there. The correct client (`bug` unset)
//! is the fixed twin that must not be flagged; where the bug is of a way of locking that the
//! correct client does not have, the twin is the same file with `twin = true`.

mod a01;
mod a02;
mod a03;
mod a04;
mod a05;
mod a06;
mod a08;
mod a09;
mod a13;
mod a15;
mod a20;
mod a21;
mod a22;
mod a31;
mod a41;
mod a43;
mod a45;
mod a47;
mod a55;
mod leased_set;

use std::time::Duration;

use super::{BoxedLock, ConfError, LockContext, param};

/// One seeded bug with a client of its own.
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
    a15::BUG,
    a20::BUG,
    a21::BUG,
    a22::BUG,
    a31::BUG,
    a41::BUG,
    a43::BUG,
    a45::BUG,
    a55::BUG,
];

/// Seeded bugs of clients of PostgreSQL.
pub const POSTGRES: &[Bug] = &[a47::BUG];

/// Rows that are a few words of the correct client: system, id, what is wrong.
pub const INLINE: &[(&str, &str, &str)] = &[
    (
        "redlock",
        "A19",
        "the time that the acquire took is not taken off the validity",
    ),
    (
        "etcd",
        "A29",
        "no look whether the own key is still there once the lock answers",
    ),
    (
        "etcd",
        "A30",
        "unlock deletes by name, and once more if its answer was lost",
    ),
    (
        "zookeeper",
        "A37",
        "no GUID: a creation whose answer was lost is made again",
    ),
    (
        "zookeeper",
        "A38",
        "its own node is known by name, whichever session made it",
    ),
    (
        "zookeeper",
        "herd",
        "every waiter watches the whole queue: each hand-over wakes them all",
    ),
];

/// Rows that are bugs of whoever holds a lock and not of its client: how the
/// worker treats its leases (`worker::Behaviour`). They fit every system.
pub const HOLDER: &[(&str, &str)] = &[
    ("A10", "the watchdog dies silently after its first renewal"),
    (
        "A25",
        "the lock is given back before the work under it is done",
    ),
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

/// Param `twin` (default false): the same client without its mistake.
fn twin(cx: &LockContext) -> Result<bool, ConfError> {
    param(&cx.system.params, "twin", false)
}

/// The client of `system` with this bug, which is one of `bugs`.
///
/// # Errors
/// An unknown bug; the message lists the known ones.
pub fn make(
    system: &str,
    bugs: &[Bug],
    id: &str,
    cx: &LockContext,
) -> Result<BoxedLock, ConfError> {
    match bugs.iter().find(|b| b.id == id) {
        Some(bug) => (bug.new)(cx),
        None => Err(unknown(system, id, bugs.iter().map(|b| b.id))),
    }
}

/// Which of the [`INLINE`] bugs of `system` is asked for, if any.
///
/// # Errors
/// An unknown bug; the message lists the known ones.
pub fn inline(system: &str, cx: &LockContext) -> Result<Option<&'static str>, ConfError> {
    let Some(asked) = of_client(cx)? else {
        return Ok(None);
    };
    let own = || INLINE.iter().filter(|(s, ..)| *s == system).map(|b| b.1);
    match own().find(|id| *id == asked) {
        Some(id) => Ok(Some(id)),
        None => Err(unknown(system, &asked, own())),
    }
}

fn unknown<'a>(system: &str, id: &str, own: impl Iterator<Item = &'a str>) -> ConfError {
    let holders = HOLDER.iter().map(|(id, _)| *id);
    let known: Vec<&str> = own.chain(holders).collect();
    ConfError(format!(
        "no bug \"{id}\" of {system}; known: {}",
        known.join(", ")
    ))
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
mod check_tests;
#[cfg(test)]
mod redis_check_tests;
#[cfg(test)]
#[path = "tests.rs"]
mod tests;
