//! Lock clients with one seeded bug each, to prove that the checks see it.
//! One file a bug, and one line in [`REDIS`]. The correct client beside them
//! (`bug` unset) is the fixed twin that must not be flagged.

use super::{BoxedLock, ConfError, LockContext};

/// One seeded bug of a Redis client.
pub struct Bug {
    /// Row of the list of known bugs.
    pub id: &'static str,
    pub about: &'static str,
    new: fn(&LockContext) -> Result<BoxedLock, ConfError>,
}

/// Seeded bugs of clients of one Redis server: `system.params.bug = "A2"`.
pub const REDIS: &[Bug] = &[];

/// The Redis client with this bug.
///
/// # Errors
/// An unknown bug; the message lists the known ones.
pub fn redis(id: &str, cx: &LockContext) -> Result<BoxedLock, ConfError> {
    match REDIS.iter().find(|b| b.id == id) {
        Some(bug) => (bug.new)(cx),
        None => {
            let known: Vec<&str> = REDIS.iter().map(|b| b.id).collect();
            Err(ConfError(format!(
                "no bug \"{id}\"; known: {}",
                known.join(", ")
            )))
        }
    }
}
