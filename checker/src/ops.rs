//! Operations with their intervals: what every engine works on.

/// Return stamp of an operation whose outcome is unknown: it may take effect
/// at any time after its call, or never.
pub const NEVER: u64 = u64::MAX;

/// One operation and the interval in which it took effect.
///
/// `call` and `ret` are event indexes (or any stamps that are unique and rise
/// with time); A precedes B if `A.ret < B.call`. A `ret` of [`NEVER`] means that
/// the operation is *optional*: nobody was told its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Timed<O> {
    pub call: u64,
    pub ret: u64,
    pub process: u64,
    pub op: O,
}

impl<O> Timed<O> {
    /// Whether the outcome is unknown, so that the operation may be left out.
    pub fn is_optional(&self) -> bool {
        self.ret == NEVER
    }
}
