//! The search itself: from return to return, frontier by frontier.

use std::time::Instant;

use rayon::prelude::*;

use super::config::{Config, has};
use super::frontier::{self, Visited};
use super::plan::{Plan, Step};
use super::states::{MISSING, States};
use super::successors::{Around, Live, Pending, Seen, successors};
use super::{Bounds, Found, Searched, Stop};
use crate::model::Model;
use crate::ops::Timed;

/// Configurations kept at first; grows by `GROWTH` whenever that was too few.
const WIDTH: usize = 256;
const GROWTH: usize = 32;
/// Configurations that one return may visit, for each that may be kept.
const VISITS: usize = 32;
/// From this layer size on, a layer is expanded on all cores.
const PARALLEL: usize = 2048;

/// Where a search can go on from.
#[derive(Clone)]
struct Point<const W: usize> {
    step: usize,
    frontier: Vec<Config<W>>,
    around: Around<W>,
    cut: Option<(u64, Vec<u32>)>,
}

pub(super) struct Search<'a, M: Model, const W: usize> {
    plan: &'a Plan,
    states: States<'a, M>,
    bounds: Bounds,
    explored: u64,
    peak: u64,
    width: usize,
    /// Something was cut off since the last complete frontier.
    narrowed: bool,
}

impl<'a, M: Model, const W: usize> Search<'a, M, W> {
    pub fn new(model: &'a M, ops: &'a [Timed<M::Op>], plan: &'a Plan, bounds: Bounds) -> Self {
        let states = States::new(model, ops, &plan.classes);
        Search {
            plan,
            states,
            bounds,
            explored: 0,
            peak: 0,
            width: WIDTH,
            narrowed: false,
        }
    }

    pub fn run(mut self, starts: &[M::State]) -> Searched<M::State> {
        let found = self.walk(starts);
        Searched {
            found,
            states: self.explored,
            bytes: self.peak.max(self.states.bytes()),
        }
    }

    fn walk(&mut self, starts: &[M::State]) -> Found<M::State> {
        let start = |s: &M::State| Config {
            done: [0; W],
            free: [0; W],
            state: self.states.intern(s.clone()),
            used: 0,
            quiet: false,
        };
        let frontier = starts.iter().map(start).collect();
        let mut at = Point {
            step: 0,
            frontier,
            around: Around::new(self.plan),
            cut: None,
        };
        let mut complete: Option<Point<W>> = None;
        while at.step < self.plan.steps.len() {
            let Step::Return { slot, op } = self.plan.steps[at.step] else {
                self.call(&mut at);
                at.step += 1;
                continue;
            };
            let cut_before = self.narrowed;
            let next = match self.close(&at, slot) {
                Ok(next) => next,
                Err(stop) => {
                    return Found::Stopped {
                        stop,
                        prefix: self.plan.stamps[at.step],
                    };
                }
            };
            if self.narrowed && !cut_before && complete.is_none() {
                complete = Some(at.clone());
            }
            if next.is_empty() {
                let Some(point) = complete.take() else {
                    return self.stuck(op, at.cut);
                };
                self.width = self.width.saturating_mul(GROWTH);
                self.narrowed = false;
                at = point;
                continue;
            }
            at.frontier = next;
            at.around.remove(slot);
            self.note_cut(&mut at);
            at.step += 1;
        }
        Found::Linearizable
    }

    fn stuck(&self, op: u32, cut: Option<(u64, Vec<u32>)>) -> Found<M::State> {
        let named = |(stamp, states): (u64, Vec<u32>)| {
            (
                stamp,
                states.iter().map(|&s| self.states.get(s).clone()).collect(),
            )
        };
        Found::Stuck {
            op: op as usize,
            cut: cut.map(named),
        }
    }

    /// Remembers a moment at which no known operation is pending.
    fn note_cut(&self, at: &mut Point<W>) {
        if at.around.pending.is_empty() && at.frontier.len() <= 64 {
            let mut states: Vec<u32> = at.frontier.iter().map(|c| c.state).collect();
            states.sort_unstable();
            states.dedup();
            at.cut = Some((self.plan.stamps[at.step], states));
        }
    }

    fn call(&mut self, at: &mut Point<W>) {
        match self.plan.steps[at.step] {
            Step::Offer { class } => at.around.offer(class),
            Step::Call { slot, class } => {
                let c = self.plan.classes[class as usize];
                at.around.add(Pending {
                    slot,
                    class,
                    read: c.read,
                    blind: c.blind,
                });
                if c.read {
                    for config in &mut at.frontier {
                        if self.states.step(config.state, class) != super::states::NO {
                            super::config::set(&mut config.done, slot);
                        }
                    }
                }
            }
            Step::Return { .. } => {}
        }
    }

    fn charge(&mut self, configs: usize, held: usize) -> Result<(), Stop> {
        self.explored += configs as u64;
        if self.explored > self.bounds.max_states {
            return Err(Stop::States);
        }
        if self.bounds.deadline.is_some_and(|d| Instant::now() >= d) {
            return Err(Stop::Time);
        }
        let bytes = self.states.bytes() + (held * (3 * size_of::<Config<W>>() + 16)) as u64;
        self.peak = self.peak.max(bytes);
        if bytes > self.bounds.memory {
            Err(Stop::Memory)
        } else {
            Ok(())
        }
    }

    /// The frontier after the operation in `target` returned.
    fn close(&mut self, at: &Point<W>, target: u32) -> Result<Vec<Config<W>>, Stop> {
        let mut result: Vec<Config<W>> = Vec::with_capacity(at.frontier.len());
        let mut layer: Vec<Config<W>> = Vec::new();
        for c in &at.frontier {
            if has(&c.done, target) || has(&c.free, target) {
                result.push(c.forget(target));
            }
            if !has(&c.done, target) {
                layer.push(*c);
            }
        }
        if layer.is_empty() && result.len() == at.frontier.len() && result.len() <= 4096 {
            return Ok(frontier::prune(result, &self.states.used));
        }
        let mut visited: Visited<W> = Visited::new();
        let mut visits = 0usize;
        while !layer.is_empty() {
            let made = self.expand(&layer, &at.around, result.len() + visits)?;
            layer.clear();
            for c in made {
                if has(&c.done, target) {
                    result.push(c.forget(target));
                } else if visited.insert(&c, &self.states.used) {
                    layer.push(c);
                }
            }
            visits += layer.len();
            if visits > self.width.saturating_mul(VISITS) && !result.is_empty() && !layer.is_empty()
            {
                self.narrowed = true;
                break;
            }
            if result.len() > 4 * self.width.max(4096) {
                result = frontier::prune(result, &self.states.used);
            }
        }
        let mut result = frontier::prune(result, &self.states.used);
        if result.len() > self.width {
            frontier::best(&mut result, self.width, &self.states.used);
            self.narrowed = true;
        }
        Ok(result)
    }

    /// All successors of a layer.
    fn expand(
        &mut self,
        layer: &[Config<W>],
        around: &Around<W>,
        held: usize,
    ) -> Result<Vec<Config<W>>, Stop> {
        if self.bounds.parallel && layer.len() >= PARALLEL && rayon::current_num_threads() > 1 {
            return self.expand_parallel(layer, around, held);
        }
        let mut out = Vec::new();
        for chunk in layer.chunks(256) {
            for c in chunk {
                successors(&mut Live(&mut self.states), around, c, &mut out);
            }
            self.charge(chunk.len(), held + layer.len() + out.len())?;
        }
        Ok(out)
    }

    /// As `expand`; what the tables lack is computed on all cores between passes,
    /// so that the result does not depend on how the work was shared.
    fn expand_parallel(
        &mut self,
        layer: &[Config<W>],
        around: &Around<W>,
        held: usize,
    ) -> Result<Vec<Config<W>>, Stop> {
        let mut all = Vec::new();
        for part in layer.chunks(64 * PARALLEL) {
            loop {
                let states = &self.states;
                let done: Vec<(Vec<Config<W>>, Seen<'_, M>)> = part
                    .par_chunks(512)
                    .map(|chunk| {
                        let (mut out, mut seen) = (Vec::new(), Seen::new(states));
                        for c in chunk {
                            successors(&mut seen, around, c, &mut out);
                        }
                        (out, seen)
                    })
                    .collect();
                let mut missing: Vec<(u32, u32)> = done
                    .iter()
                    .flat_map(|d| d.1.steps.iter().copied())
                    .collect();
                let mut sets: Vec<(u32, u32)> =
                    done.iter().flat_map(|d| d.1.sets.iter().copied()).collect();
                if missing.is_empty() && sets.is_empty() {
                    all.extend(done.into_iter().flat_map(|d| d.0));
                    break;
                }
                missing.sort_unstable();
                missing.dedup();
                sets.sort_unstable();
                sets.dedup();
                let computed: Vec<Option<M::State>> = missing
                    .par_iter()
                    .map(|&(s, c)| states.compute(s, c))
                    .collect();
                for (&(s, c), next) in missing.iter().zip(computed) {
                    debug_assert_eq!(self.states.look(s, c), MISSING);
                    self.states.remember(s, c, next);
                }
                for (set, class) in sets {
                    self.states.used.add(set, class);
                }
                self.charge(0, held + layer.len() + all.len())?;
            }
            self.charge(part.len(), held + layer.len() + all.len())?;
        }
        Ok(all)
    }
}
