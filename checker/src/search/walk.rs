//! Through the history, narrow first and wider where that fails.

use super::Bounds;
use super::Stop;
use super::config::{Config, set};
use super::expand::{Expander, Width};
use super::plan::{Plan, Step};
use super::states::{NO, Space, Tables};
use super::successors::Around;

/// Returns between two snapshots of a narrowed frontier.
const APART: usize = 24;
const SNAPSHOTS: usize = 64;

/// Where a walk can go on from.
#[derive(Clone)]
struct Point<const W: usize> {
    step: usize,
    frontier: Vec<Config<W>>,
    around: Around<W>,
    cut: Option<(u64, Vec<u32>)>,
}

/// How a walk ended; states by number.
pub(super) enum End {
    Linearizable,
    /// At the return of `op`; it may be because of a read in `ahead`.
    Stuck {
        op: u32,
        ahead: Vec<u32>,
        cut: Option<(u64, Vec<u32>)>,
    },
    Stopped {
        stop: Stop,
        step: usize,
    },
}

pub(super) struct Walk<'a, const W: usize> {
    plan: &'a Plan,
    pub work: Expander<'a>,
    /// Last frontier that lacks nothing, if something was left out since.
    complete: Option<Point<W>>,
    /// Narrowed frontiers to go back to.
    snapshots: Vec<Point<W>>,
    level: u32,
    /// Furthest step at which a narrowed frontier died, and how often since.
    worst: usize,
    deaths: u32,
}

impl<'a, const W: usize> Walk<'a, W> {
    pub fn new(plan: &'a Plan, space: &'a mut dyn Space, bounds: Bounds) -> Self {
        let tables = Tables::new(space, plan.classes.len());
        let work = Expander {
            tables,
            bounds,
            explored: 0,
            peak: 0,
        };
        Walk {
            plan,
            work,
            complete: None,
            snapshots: Vec::new(),
            level: 0,
            worst: 0,
            deaths: 0,
        }
    }

    pub fn run(&mut self, starts: &[u32]) -> End {
        let start = |&state: &u32| Config {
            done: [0; W],
            free: [0; W],
            state,
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
        let mut furthest = 0;
        let mut returns = 0;
        while at.step < self.plan.steps.len() {
            let Step::Return { slot, op } = self.plan.steps[at.step] else {
                self.call(&mut at);
                at.step += 1;
                continue;
            };
            at.around.now = self.plan.stamps[at.step];
            at.around.guides = self.plan.guides.at(at.around.now);
            let width = Width::level(self.level);
            let (next, narrowed) = match self.work.close(&at.frontier, &at.around, slot, width) {
                Ok(next) => next,
                Err(stop) => {
                    return End::Stopped {
                        stop,
                        step: furthest,
                    };
                }
            };
            if narrowed && self.complete.is_none() {
                self.complete = Some(at.clone());
            }
            if next.is_empty() {
                match self.back(at.step) {
                    Some(point) => at = point,
                    None => {
                        // A read ahead may be what rules everything out.
                        let ahead = at.around.guides.iter().flatten().map(|g| g.op);
                        return End::Stuck {
                            op,
                            ahead: ahead.collect(),
                            cut: at.cut,
                        };
                    }
                }
                continue;
            }
            at.frontier = next;
            at.around.remove(slot);
            self.note_cut(&mut at);
            at.step += 1;
            furthest = furthest.max(at.step - 1);
            returns += 1;
            if self.complete.is_some() && returns % APART == 0 {
                self.snapshot(&at);
            }
        }
        End::Linearizable
    }

    fn snapshot(&mut self, at: &Point<W>) {
        if self.snapshots.len() == SNAPSHOTS {
            // Every other one stays: the further back, the further apart.
            let mut i = 0;
            self.snapshots.retain(|_| {
                i += 1;
                i % 2 == 0
            });
        }
        self.snapshots.push(at.clone());
        if at.step > self.worst + 8 * APART {
            (self.level, self.deaths) = (0, 0);
        }
    }

    /// Where to go on after a death: further back and wider each time; at last
    /// from the complete frontier, leaving nothing out. `None` if nothing was
    /// left out, so that the death is final.
    fn back(&mut self, step: usize) -> Option<Point<W>> {
        self.complete.as_ref()?;
        if step > self.worst {
            (self.worst, self.deaths) = (step, 0);
        }
        self.deaths += 1;
        for _ in 1..1usize << (2 * (self.deaths - 1)).min(16) {
            self.snapshots.pop();
        }
        self.level = self.deaths;
        if self.level < Width::COMPLETE
            && let Some(point) = self.snapshots.pop()
        {
            return Some(point);
        }
        self.snapshots.clear();
        self.complete.take()
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
                at.around.add(slot, class);
                if !self.plan.classes[class as usize].read {
                    return;
                }
                for config in &mut at.frontier {
                    if self.work.tables.step(config.state, class) != NO {
                        set(&mut config.done, slot);
                    }
                }
            }
            Step::Return { .. } => {}
        }
    }
}
