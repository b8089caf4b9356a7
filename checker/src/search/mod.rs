//! The general engine: any model, any history.
//!
//! Frontier search. Events are taken in order; the frontier is the set of all
//! configurations (state, which pending operations took effect, which optional
//! ones did) that explain the history so far. An operation takes effect only
//! when some return forces it (just-in-time linearization, Lowe 2017): at the
//! return of an operation that has not, every sequence of pending operations
//! that ends in it is tried. So the memo is keyed on (event, pending mask,
//! state) as in FPTLin (Lee & Mathur, PLDI 2026), and its size depends on the
//! concurrency, not on the length of the history.
//!
//! What keeps frontiers small, each of which loses no solution:
//! - a pending read is taken as soon as the state allows it, for it changes nothing;
//! - an optional operation need not be used: a configuration that used no more,
//!   with all else equal, can do whatever the other can, which is dropped;
//!   equal optional operations are counted, not named;
//! - once an overwriting operation takes effect, every overwriting one that is
//!   pending is *free*: it can be put just before, unseen (see [`config`]);
//! - two overwriting operations in a row with nothing seen between are never
//!   tried, since the first is free anyway.
//!
//! - states from which a coming read is out of reach are dropped (see [`guide`]).
//!
//! The frontier is first kept narrow; what survives to the end proves
//! linearizability all the same. If it dies after something was left out, the
//! walk goes back a little and on with more, again further back with still more,
//! and at last from the last complete frontier, leaving nothing out. Only a
//! complete frontier that dies proves a violation.

mod config;
mod expand;
mod frontier;
mod guide;
mod plan;
mod states;
mod successors;
#[cfg(test)]
mod tests;
mod used;
mod walk;

use std::time::{Duration, Instant};

use crate::model::Model;
use crate::ops::Timed;
pub(crate) use guide::DEEP;
use plan::Plan;
use states::{Named, Space};
use walk::{End, Walk};

/// Bytes given back in a nanosecond.
const FREED: u64 = 4;

/// Bounds of one search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub deadline: Option<Instant>,
    pub memory: u64,
    pub max_states: u64,
    pub parallel: bool,
}

impl Bounds {
    pub fn new(options: &crate::Options, started: Instant) -> Self {
        Bounds {
            deadline: options
                .limit
                .map(|l| started + l.saturating_sub(Duration::from_millis(60).min(l / 10))),
            memory: options.memory,
            max_states: options.max_states.unwrap_or(u64::MAX),
            parallel: options.parallel,
        }
    }
}

impl Bounds {
    /// Whether the time is up.
    pub fn late(&self) -> bool {
        self.deadline.is_some_and(|d| Instant::now() >= d)
    }

    /// Whether it will be, once so much memory has been given back.
    pub fn late_to_free(&self, bytes: u64) -> bool {
        let freeing = Duration::from_nanos(bytes / FREED);
        self.deadline.is_some_and(|d| Instant::now() + freeing >= d)
    }
}

/// Why a search stopped short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Time,
    Memory,
    States,
    /// More known operations pending at once than slots.
    Concurrency,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Found<S> {
    Linearizable,
    /// At the return of the first of these operations nothing is possible any more; it may be because of
    /// one of the others, reads that were to come.
    Stuck {
        ops: Vec<usize>,
        /// A stamp at which no known operation was pending, near the end, and
        /// the states that the history before it allows.
        cut: Option<(u64, Vec<S>)>,
    },
    Stopped {
        stop: Stop,
        /// Everything up to this stamp can be explained.
        prefix: u64,
    },
}

/// Outcome with what it cost.
#[derive(Clone, Debug)]
pub(crate) struct Searched<S> {
    pub found: Found<S>,
    pub states: u64,
    pub bytes: u64,
}

/// Searches one object's history, from any of `starts`. Operations must be sorted by call.
pub(crate) fn run<M: Model>(
    model: &M,
    ops: &[Timed<M::Op>],
    starts: &[M::State],
    bounds: Bounds,
) -> Searched<M::State> {
    let plan = Plan::new(model, ops);
    let mut named = Named::new(model, ops, &plan.classes);
    let starts: Vec<u32> = starts.iter().map(|s| named.intern(s.clone())).collect();
    let (end, states, bytes) = walk(&plan, &mut named, &starts, bounds);
    let found = match end {
        End::Linearizable => Found::Linearizable,
        End::Stuck { op, ahead, cut } => {
            let ops = [op].into_iter().chain(ahead).map(|i| i as usize);
            let states = |s: Vec<u32>| s.iter().map(|&s| named.get(s).clone()).collect();
            Found::Stuck {
                ops: ops.collect(),
                cut: cut.map(|(stamp, s)| (stamp, states(s))),
            }
        }
        End::Stopped { stop, step } => Found::Stopped {
            stop,
            prefix: plan.stamps.get(step).copied().unwrap_or(0),
        },
    };
    Searched {
        found,
        states,
        bytes,
    }
}

/// The search proper, compiled for a few numbers of slots.
fn walk(plan: &Plan, space: &mut dyn Space, starts: &[u32], bounds: Bounds) -> (End, u64, u64) {
    fn sized<const W: usize>(
        plan: &Plan,
        space: &mut dyn Space,
        starts: &[u32],
        bounds: Bounds,
    ) -> (End, u64, u64) {
        let mut walk = Walk::<W>::new(plan, space, bounds);
        let end = walk.run(starts);
        (
            end,
            walk.work.explored,
            walk.work.peak.max(walk.work.tables.bytes()),
        )
    }
    match plan.slots {
        0..=64 => sized::<1>(plan, space, starts, bounds),
        65..=256 => sized::<4>(plan, space, starts, bounds),
        257..=4096 => sized::<64>(plan, space, starts, bounds),
        _ => (
            End::Stopped {
                stop: Stop::Concurrency,
                step: 0,
            },
            0,
            0,
        ),
    }
}
