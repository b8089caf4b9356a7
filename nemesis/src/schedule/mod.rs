//! When faults come and go: plans as written in a scenario, and the pure engine that
//! turns them into actions. No clock, no I/O, no randomness but the run's seed.
//!
//! A controller's loop:
//!
//! ```text
//! let mut s = Scheduler::new(plans, seed, ttl)?;      // or Scheduler::replay(lines)
//! s.lacks_point(worker, "before-store-write");        // from each init reply
//! loop: actions = s.on_cue(&cue, now)                 // after each acknowledged operation
//!       actions = s.tick(now)                         // at s.next_tick() or every few ms
//!       for a in actions:
//!         Install(order) → nemesis.prepare, install → s.settled(&id, &targets, installed?, now)
//!         Heal{id}       → nemesis.heal(&id)           → s.healed(&id, now)
//!         Go{op, ..}     → send {"go":op} to that worker
//! before a write is sent: s.stop_at(worker, lock) → the request's `stop_at`
//! at the end of the load: s.end(now) gives the last Heal and Go actions
//! ```

mod cue;
mod engine;
mod firing;
mod plan;
mod save;
mod span;

pub use cue::{Cue, CueKind};
pub use engine::{Action, Scheduler};
pub use plan::{Choice, On, Piece, Plan, PlanError, Until};
pub use save::{Line, SaveError, read_lines};
pub use span::{Span, SpanError};

#[cfg(test)]
mod tests;
