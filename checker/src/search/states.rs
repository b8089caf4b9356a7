//! States by number; transitions are remembered, so that a model's step runs
//! once for each state and class. Only [`Named`] knows the model: the search
//! itself is compiled once for all of them.

use std::hash::BuildHasher;

use hashbrown::{HashMap, HashTable};

use super::guide::Ahead;
use super::plan::Class;
use super::used::Used;
use crate::model::Model;
use crate::ops::Timed;

/// Not allowed; not known yet.
pub(crate) const NO: u32 = u32::MAX;
pub(crate) const MISSING: u32 = u32::MAX - 1;
/// Above this many classes, transitions are hashed instead of tabled.
const TABLE: usize = 512;

type Hash = foldhash::fast::RandomState;

/// States of some model, by number.
pub(super) trait Space: Sync {
    /// State after an operation of a class, or [`NO`].
    fn step(&mut self, state: u32, class: u32) -> u32;
    /// As `step` for many, numbered in the order given.
    fn steps(&mut self, wanted: &[(u32, u32)]) -> Vec<u32>;
    /// Whether the state rules out a read for good (see `Model::part`).
    fn precludes(&self, state: u32, class: u32) -> bool;
    /// See `Model::fade`; the state itself where there is nothing to do.
    fn fade(&mut self, state: u32, part: u32) -> u32;
    /// Rough bytes held.
    fn bytes(&self) -> u64;
}

pub(super) struct Named<'a, M: Model> {
    model: &'a M,
    ops: &'a [Timed<M::Op>],
    classes: &'a [Class],
    /// Hash and number of each state.
    by_state: HashTable<(u64, u32)>,
    hasher: Hash,
    states: Vec<M::State>,
    heap: u64,
}

impl<'a, M: Model> Named<'a, M> {
    pub fn new(model: &'a M, ops: &'a [Timed<M::Op>], classes: &'a [Class]) -> Self {
        Named {
            model,
            ops,
            classes,
            by_state: HashTable::new(),
            hasher: Hash::default(),
            states: Vec::new(),
            heap: 0,
        }
    }

    pub fn get(&self, state: u32) -> &M::State {
        &self.states[state as usize]
    }

    pub fn intern(&mut self, state: M::State) -> u32 {
        let hash = self.hasher.hash_one(&state);
        let same = |&(_, i): &(u64, u32)| self.states[i as usize] == state;
        if let Some(&(_, i)) = self.by_state.find(hash, same) {
            return i;
        }
        let i = self.states.len() as u32;
        self.heap += self.model.heap(&state) as u64;
        self.by_state.insert_unique(hash, (hash, i), |e| e.0);
        self.states.push(state);
        i
    }

    fn op(&self, class: u32) -> &'a M::Op {
        &self.ops[self.classes[class as usize].op as usize].op
    }
}

impl<M: Model> Space for Named<'_, M> {
    fn step(&mut self, state: u32, class: u32) -> u32 {
        let next = self
            .model
            .step(&self.states[state as usize], self.op(class));
        next.map_or(NO, |n| self.intern(n))
    }

    fn steps(&mut self, wanted: &[(u32, u32)]) -> Vec<u32> {
        wanted.iter().map(|&(s, c)| self.step(s, c)).collect()
    }

    fn precludes(&self, state: u32, class: u32) -> bool {
        self.model
            .precludes(&self.states[state as usize], self.op(class))
    }

    fn fade(&mut self, state: u32, part: u32) -> u32 {
        let faded = self.model.fade(&self.states[state as usize], part);
        faded.map_or(state, |f| self.intern(f))
    }

    fn bytes(&self) -> u64 {
        self.heap + (self.states.len() * (size_of::<M::State>() + 32)) as u64
    }
}

/// What is known of transitions and of sets of used operations.
pub(super) struct Tables<'a> {
    pub space: &'a mut dyn Space,
    classes: usize,
    /// A row of all classes for each state, one after the other: a million states are given back at once.
    rows: Vec<u32>,
    hashed: HashMap<(u32, u32), u32, Hash>,
    /// Reads that each state leaves possible, by part.
    live: HashMap<(u32, u32), Vec<Ahead>, Hash>,
    pub used: Used,
}

impl<'a> Tables<'a> {
    pub fn new(space: &'a mut dyn Space, classes: usize) -> Self {
        Tables {
            space,
            classes,
            rows: Vec::new(),
            hashed: HashMap::default(),
            live: HashMap::default(),
            used: Used::new(),
        }
    }

    /// State after an operation of a class: a state, [`NO`], or [`MISSING`].
    pub fn look(&self, state: u32, class: u32) -> u32 {
        match self.classes <= TABLE {
            true => self
                .rows
                .get(state as usize * self.classes + class as usize)
                .copied()
                .unwrap_or(MISSING),
            false => self.hashed.get(&(state, class)).copied().unwrap_or(MISSING),
        }
    }

    pub fn remember(&mut self, state: u32, class: u32, next: u32) {
        if self.classes > TABLE {
            self.hashed.insert((state, class), next);
            return;
        }
        let row = state as usize * self.classes;
        if self.rows.len() <= row {
            self.rows.resize(row + self.classes, MISSING);
        }
        self.rows[row + class as usize] = next;
    }

    pub fn step(&mut self, state: u32, class: u32) -> u32 {
        match self.look(state, class) {
            MISSING => {
                let next = self.space.step(state, class);
                self.remember(state, class, next);
                next
            }
            next => next,
        }
    }

    /// Whether `is` holds for a read among `reads` that the state leaves possible.
    pub fn any_live(
        &mut self,
        state: u32,
        part: u32,
        reads: &[Ahead],
        is: impl Fn(&Ahead) -> bool,
    ) -> bool {
        let space = &*self.space;
        let possible = || {
            reads
                .iter()
                .filter(|r| !space.precludes(state, r.class))
                .copied()
                .collect()
        };
        self.live
            .entry((state, part))
            .or_insert_with(possible)
            .iter()
            .any(is)
    }

    /// Computes transitions.
    pub fn fill(&mut self, wanted: &[(u32, u32)]) {
        let next = self.space.steps(wanted);
        for (&(state, class), next) in wanted.iter().zip(next) {
            self.remember(state, class, next);
        }
    }

    /// Rough bytes held.
    pub fn bytes(&self) -> u64 {
        let tables = self.rows.len() * 4 + self.hashed.capacity() * 13;
        self.space.bytes() + tables as u64 + self.used.bytes()
    }
}
