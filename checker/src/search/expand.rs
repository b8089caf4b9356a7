//! From one return to the next: the frontier after it.

use rayon::prelude::*;

use super::config::{Config, has};
use super::frontier::{self, Visited};
use super::states::Tables;
use super::successors::{Around, Live, Seen, known, optional};
use super::{Bounds, Stop};

/// From this layer size on, a layer is expanded on all cores.
const PARALLEL: usize = 2048;

/// Bytes of configurations above which those that are through are pruned at once.
const MANY: usize = 4 << 20;

/// How much of a frontier is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Width {
    /// Configurations.
    pub all: usize,
    /// Those that differ only in which optional operations they used.
    pub each: usize,
    /// Configurations visited at one return.
    pub visits: usize,
    /// Optional operations used at one return beyond the fewest that are enough.
    pub slack: usize,
}

impl Width {
    /// Each level keeps several times as much as the one before; the last, everything.
    pub fn level(level: u32) -> Width {
        if level >= Width::COMPLETE {
            return Width {
                all: usize::MAX,
                each: usize::MAX,
                visits: usize::MAX,
                slack: usize::MAX,
            };
        }
        let all = 128usize << (3 * level);
        Width {
            all,
            each: 2 << (2 * level),
            visits: 16 * all,
            slack: level as usize,
        }
    }

    pub const COMPLETE: u32 = 5;
}

pub(super) struct Expander<'a> {
    pub tables: Tables<'a>,
    pub bounds: Bounds,
    pub explored: u64,
    pub peak: u64,
}

impl Expander<'_> {
    /// Accounts for work and memory.
    fn charge<const W: usize>(&mut self, configs: usize, held: usize) -> Result<(), Stop> {
        self.explored += configs as u64;
        if self.explored > self.bounds.max_states {
            return Err(Stop::States);
        }
        let bytes = self.tables.bytes() + (held * (3 * size_of::<Config<W>>() + 16)) as u64;
        self.peak = self.peak.max(bytes);
        if self.bounds.late_to_free(bytes) {
            return Err(Stop::Time);
        }
        if bytes > self.bounds.memory {
            Err(Stop::Memory)
        } else {
            Ok(())
        }
    }

    /// The frontier after the operation in slot `target` returned, and whether
    /// something was left out of it.
    pub fn close<const W: usize>(
        &mut self,
        from: &[Config<W>],
        around: &Around<W>,
        target: u32,
        width: Width,
    ) -> Result<(Vec<Config<W>>, bool), Stop> {
        let mut result: Vec<Config<W>> = Vec::with_capacity(from.len());
        let mut layer: Vec<Config<W>> = Vec::new();
        for c in from {
            if has(&c.done, target) || has(&c.free, target) {
                result.push(c.forget(target));
            }
            if !has(&c.done, target) {
                layer.push(*c);
            }
        }
        let mut visited: Visited<W> = Visited::new(width.each);
        let (mut visits, mut narrowed, mut spare) = (0usize, false, width.slack);
        // Rounds use one optional operation more each.
        while !layer.is_empty() {
            let mut reached = if around.has_offers() {
                layer.clone()
            } else {
                Vec::new()
            };
            while !layer.is_empty() {
                let made = self.expand(&layer, around, false, result.len() + visits)?;
                layer.clear();
                self.sort_out(made, target, &mut visited, &mut result, &mut layer)?;
                visits += layer.len();
                if visits > width.visits && !result.is_empty() && !layer.is_empty() {
                    narrowed = true;
                    break;
                }
                if around.has_offers() {
                    reached.extend_from_slice(&layer);
                }
            }
            if !around.has_offers() || (narrowed && !result.is_empty()) {
                break;
            }
            if !result.is_empty() {
                if spare == 0 {
                    narrowed = true;
                    break;
                }
                spare -= 1;
            }
            let made = self.expand(&reached, around, true, result.len() + visits)?;
            layer.clear();
            self.sort_out(made, target, &mut visited, &mut result, &mut layer)?;
            visits += layer.len();
        }
        self.charge::<W>(1, result.len() + visits)?;
        let mut result = frontier::prune(result, &self.tables.used);
        narrowed |= visited.narrowed;
        narrowed |= frontier::thin(&mut result, width.each, width.all, &self.tables.used);
        Ok((result, narrowed))
    }

    /// Tells those that are through from those to go on with.
    fn sort_out<const W: usize>(
        &self,
        made: Vec<Config<W>>,
        target: u32,
        visited: &mut Visited<W>,
        result: &mut Vec<Config<W>>,
        layer: &mut Vec<Config<W>>,
    ) -> Result<(), Stop> {
        let many = MANY / size_of::<Config<W>>();
        for (n, c) in made.into_iter().enumerate() {
            if n % 16 == 15 && self.bounds.late() {
                return Err(Stop::Time);
            }
            if has(&c.done, target) {
                result.push(c.forget(target));
            } else if visited.insert(&c, &self.tables.used) {
                layer.push(c);
            }
        }
        if result.len() > many {
            *result = frontier::prune(std::mem::take(result), &self.tables.used);
        }
        Ok(())
    }

    /// All successors of a layer, by known operations or by optional ones.
    fn expand<const W: usize>(
        &mut self,
        layer: &[Config<W>],
        around: &Around<W>,
        offers: bool,
        held: usize,
    ) -> Result<Vec<Config<W>>, Stop> {
        if self.bounds.parallel
            && !around.has_guides()
            && layer.len() >= PARALLEL
            && rayon::current_num_threads() > 1
        {
            return self.expand_parallel(layer, around, offers, held);
        }
        let mut out = Vec::new();
        // One configuration may have thousands of successors, each with a large state.
        let each = if around.wide() { 1 } else { 64 };
        for chunk in layer.chunks(each) {
            for c in chunk {
                let bounds = self.bounds;
                let mut live = Live(&mut self.tables);
                if offers {
                    optional(&mut live, around, c, &|| bounds.late(), &mut out)
                } else {
                    known(&mut live, around, c, &mut out)
                }
            }
            self.charge::<W>(chunk.len(), held + layer.len() + out.len())?;
        }
        Ok(out)
    }

    /// As `expand`; what the tables lack is computed on all cores between passes,
    /// so that the result does not depend on how the work was shared.
    fn expand_parallel<const W: usize>(
        &mut self,
        layer: &[Config<W>],
        around: &Around<W>,
        offers: bool,
        held: usize,
    ) -> Result<Vec<Config<W>>, Stop> {
        let mut all = Vec::new();
        for part in layer.chunks(4 * PARALLEL) {
            loop {
                let (tables, bounds) = (&self.tables, &self.bounds);
                let run = |chunk: &[Config<W>]| {
                    let (mut out, mut seen) = (Vec::new(), Seen::new(tables));
                    for c in chunk {
                        // Too late to be used; noticed below.
                        if bounds.late() {
                            break;
                        }
                        if offers {
                            optional(&mut seen, around, c, &|| bounds.late(), &mut out)
                        } else {
                            known(&mut seen, around, c, &mut out)
                        }
                    }
                    (out, seen.steps, seen.sets)
                };
                let done: Vec<_> = part.par_chunks(512).map(run).collect();
                let mut steps: Vec<(u32, u32)> =
                    done.iter().flat_map(|d| d.1.iter().copied()).collect();
                let mut sets: Vec<(u32, u32)> =
                    done.iter().flat_map(|d| d.2.iter().copied()).collect();
                if steps.is_empty() && sets.is_empty() && !bounds.late() {
                    all.extend(done.into_iter().flat_map(|d| d.0));
                    break;
                }
                for list in [&mut steps, &mut sets] {
                    list.sort_unstable();
                    list.dedup();
                }
                for some in steps.chunks(1024) {
                    self.tables.fill(some);
                    self.charge::<W>(0, held + layer.len() + all.len())?;
                }
                for (set, class) in sets {
                    self.tables.used.add(set, class);
                }
                self.charge::<W>(0, held + layer.len() + all.len())?;
            }
            self.charge::<W>(part.len(), held + layer.len() + all.len())?;
        }
        Ok(all)
    }
}
