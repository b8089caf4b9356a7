//! One step from a configuration.

use super::config::{Config, Mask, clear, has, set};
use super::plan::Plan;
use super::states::{MISSING, NO, States};
use crate::model::Model;

/// A known operation that was called and has not returned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub slot: u32,
    pub class: u32,
    pub read: bool,
    pub blind: bool,
}

/// What is pending at a moment of the history, the same for all configurations.
#[derive(Clone)]
pub(super) struct Around<const W: usize> {
    pub pending: Vec<Pending>,
    blind: Mask<W>,
    /// Optional classes: how many were offered, whether they overwrite.
    offers: Vec<(u32, u32, bool)>,
    class_blind: std::sync::Arc<[bool]>,
}

impl<const W: usize> Around<W> {
    pub fn new(plan: &Plan) -> Self {
        let class_blind = plan.classes.iter().map(|c| c.blind).collect();
        Around {
            pending: Vec::new(),
            blind: [0; W],
            offers: Vec::new(),
            class_blind,
        }
    }

    pub fn add(&mut self, p: Pending) {
        if p.blind {
            set(&mut self.blind, p.slot);
        }
        self.pending.push(p);
    }

    pub fn remove(&mut self, slot: u32) {
        self.pending.retain(|p| p.slot != slot);
        clear(&mut self.blind, slot);
    }

    pub fn offer(&mut self, class: u32) {
        match self.offers.iter_mut().find(|o| o.0 == class) {
            Some(o) => o.1 += 1,
            None => self
                .offers
                .push((class, 1, self.class_blind[class as usize])),
        }
    }
}

/// Transitions and sets, either computed on demand or only looked up.
pub(super) trait Tables {
    /// A state, `NO`, or `MISSING` if it is not known yet.
    fn step(&mut self, state: u32, class: u32) -> u32;
    fn count(&self, set: u32, class: u32) -> u32;
    fn add(&mut self, set: u32, class: u32) -> Option<u32>;
}

/// Computes what is missing.
pub(super) struct Live<'s, 'a, M: Model>(pub &'s mut States<'a, M>);

impl<M: Model> Tables for Live<'_, '_, M> {
    fn step(&mut self, state: u32, class: u32) -> u32 {
        self.0.step(state, class)
    }
    fn count(&self, set: u32, class: u32) -> u32 {
        self.0.used.count(set, class)
    }
    fn add(&mut self, set: u32, class: u32) -> Option<u32> {
        Some(self.0.used.add(set, class))
    }
}

/// Notes what is missing.
pub(super) struct Seen<'s, M: Model> {
    states: &'s States<'s, M>,
    pub steps: Vec<(u32, u32)>,
    pub sets: Vec<(u32, u32)>,
}

impl<'s, M: Model> Seen<'s, M> {
    pub fn new(states: &'s States<'s, M>) -> Self {
        Seen {
            states,
            steps: Vec::new(),
            sets: Vec::new(),
        }
    }
}

impl<M: Model> Tables for Seen<'_, M> {
    fn step(&mut self, state: u32, class: u32) -> u32 {
        let next = self.states.look(state, class);
        if next == MISSING && self.steps.last() != Some(&(state, class)) {
            self.steps.push((state, class));
        }
        next
    }
    fn count(&self, set: u32, class: u32) -> u32 {
        self.states.used.count(set, class)
    }
    fn add(&mut self, set: u32, class: u32) -> Option<u32> {
        let next = self.states.used.look(set, class);
        if next.is_none() {
            self.sets.push((set, class));
        }
        next
    }
}

/// Moves to `state`, then takes every pending read that it allows.
fn arrive<T: Tables, const W: usize>(
    tables: &mut T,
    around: &Around<W>,
    mut c: Config<W>,
    state: u32,
    blind: bool,
) -> Config<W> {
    c.state = state;
    c.quiet = blind;
    if blind {
        for w in 0..W {
            c.free[w] |= around.blind[w] & !c.done[w];
        }
    }
    for r in around.pending.iter().filter(|p| p.read) {
        if !has(&c.done, r.slot) && !matches!(tables.step(state, r.class), NO | MISSING) {
            set(&mut c.done, r.slot);
            c.quiet = false;
        }
    }
    c
}

/// Every configuration one operation further.
pub(super) fn successors<T: Tables, const W: usize>(
    tables: &mut T,
    around: &Around<W>,
    c: &Config<W>,
    out: &mut Vec<Config<W>>,
) {
    for p in around.pending.iter().filter(|p| !p.read) {
        if has(&c.done, p.slot) || (c.quiet && p.blind) {
            continue;
        }
        let next = tables.step(c.state, p.class);
        if next == NO || next == MISSING {
            continue;
        }
        let mut moved = *c;
        set(&mut moved.done, p.slot);
        clear(&mut moved.free, p.slot);
        out.push(arrive(tables, around, moved, next, p.blind));
    }
    for &(class, offered, blind) in &around.offers {
        if (c.quiet && blind) || tables.count(c.used, class) >= offered {
            continue;
        }
        let next = tables.step(c.state, class);
        if next == NO || next == MISSING || (next == c.state && !blind) {
            continue;
        }
        if let Some(used) = tables.add(c.used, class) {
            out.push(arrive(tables, around, Config { used, ..*c }, next, blind));
        }
    }
}
