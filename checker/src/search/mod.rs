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
//! The frontier is first kept to a width; what survives to the end proves
//! linearizability all the same. If it dies after something was cut off, the
//! search goes on from the last complete frontier with a greater width, up to
//! what memory allows. Only a complete frontier that dies proves a violation.

mod config;
mod expand;
mod frontier;
mod plan;
mod states;
mod successors;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use crate::model::Model;
use crate::ops::Timed;
use plan::Plan;

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
                .map(|l| started + l.saturating_sub(Duration::from_millis(20).min(l / 10))),
            memory: options.memory,
            max_states: options.max_states.unwrap_or(u64::MAX),
            parallel: options.parallel,
        }
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
    /// At the return of this operation nothing is possible any more.
    Stuck {
        op: usize,
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
    match plan.slots {
        0..=64 => expand::Search::<M, 1>::new(model, ops, &plan, bounds).run(starts),
        65..=128 => expand::Search::<M, 2>::new(model, ops, &plan, bounds).run(starts),
        129..=512 => expand::Search::<M, 8>::new(model, ops, &plan, bounds).run(starts),
        513..=4096 => expand::Search::<M, 64>::new(model, ops, &plan, bounds).run(starts),
        _ => Searched {
            found: Found::Stopped {
                stop: Stop::Concurrency,
                prefix: ops.first().map_or(0, |o| o.call),
            },
            states: 0,
            bytes: 0,
        },
    }
}
