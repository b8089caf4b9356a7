//! The sequential specification of an object.

use std::fmt::Debug;
use std::hash::Hash;

/// A sequential specification: where an object starts, and what an operation
/// does to it. Only these two methods are needed; the rest are hints that make
/// the search faster and are sound to leave alone.
///
/// ```
/// use fencepost_checker::{Model, Options, Outcome, Timed, check};
///
/// /// A counter: add one, or read it.
/// struct Counter;
///
/// #[derive(Clone, Debug, PartialEq, Eq, Hash)]
/// enum Op { Add, Read(u32) }
///
/// impl Model for Counter {
///     type Op = Op;
///     type State = u32;
///     fn initial(&self) -> u32 { 0 }
///     fn step(&self, state: &u32, op: &Op) -> Option<u32> {
///         match op {
///             Op::Add => Some(state + 1),
///             Op::Read(n) => (n == state).then_some(*state),
///         }
///     }
/// }
///
/// let op = |call, ret, op| Timed { call, ret, process: 0, op };
/// let history = [op(0, 1, Op::Add), op(2, 3, Op::Read(0))];
/// assert!(matches!(check(&history, &Counter, &Options::default()), Outcome::Violated(_)));
/// ```
pub trait Model: Sync {
    /// An operation together with its answer. Unknown operations that are equal
    /// are interchangeable, and the search counts them instead of naming them.
    type Op: Clone + Debug + Eq + Hash + Sync;
    type State: Clone + Debug + Eq + Hash + Send + Sync;

    fn initial(&self) -> Self::State;

    /// State after `op`, or `None` where its answer is not possible. An
    /// operation whose answer nobody knows must accept whatever would have been
    /// answered.
    fn step(&self, state: &Self::State, op: &Self::Op) -> Option<Self::State>;

    /// True if `op` leaves *every* state that allows it unchanged.
    fn is_read(&self, _op: &Self::Op) -> bool {
        false
    }

    /// True if `op` is allowed in *every* state and the state after it does not
    /// depend on the one before.
    fn overwrites(&self, _op: &Self::Op) -> bool {
        false
    }

    /// True if `op` is allowed in *every* state.
    fn total(&self, op: &Self::Op) -> bool {
        self.overwrites(op)
    }

    /// The part of the state that `op` reads or writes, for models whose parts
    /// only grow: once [`Model::precludes`] says of a state that it rules out a
    /// read of a part, that read stays ruled out unless an operation on that
    /// part for which [`Model::resets`] is true takes effect between. `None`:
    /// no such promise.
    fn part(&self, _op: &Self::Op) -> Option<u32> {
        None
    }

    /// Whether `op` can make `read` possible again. See [`Model::part`].
    fn resets(&self, _op: &Self::Op, _read: &Self::Op) -> bool {
        false
    }

    /// See [`Model::part`].
    fn precludes(&self, _state: &Self::State, _read: &Self::Op) -> bool {
        false
    }

    /// A state that stands for all those which differ from `state` in `part`
    /// only and rule out every read of it still to come: whatever resets the
    /// part leads out of it, nothing else does. `None` if there is none.
    fn fade(&self, _state: &Self::State, _part: u32) -> Option<Self::State> {
        None
    }

    /// Bytes that a state holds outside itself, for the memory budget.
    fn heap(&self, _state: &Self::State) -> usize {
        0
    }
}
