//! States and sets of used optional operations, by number; transitions are
//! remembered, so that a model's step runs once for each state and class.

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::plan::Class;
use crate::model::Model;
use crate::ops::Timed;

/// Not allowed; not known yet.
pub(crate) const NO: u32 = u32::MAX;
pub(crate) const MISSING: u32 = u32::MAX - 1;
/// Above this many classes, transitions are hashed instead of tabled.
const TABLE: usize = 512;

type Hash = foldhash::fast::RandomState;

pub(crate) struct States<'a, M: Model> {
    model: &'a M,
    ops: &'a [Timed<M::Op>],
    classes: &'a [Class],
    by_state: HashMap<M::State, u32, Hash>,
    states: Vec<M::State>,
    rows: Vec<Vec<u32>>,
    hashed: HashMap<(u32, u32), u32, Hash>,
    heap: u64,
    pub used: Used,
}

impl<'a, M: Model> States<'a, M> {
    pub fn new(model: &'a M, ops: &'a [Timed<M::Op>], classes: &'a [Class]) -> Self {
        States {
            model,
            ops,
            classes,
            by_state: HashMap::default(),
            states: Vec::new(),
            rows: Vec::new(),
            hashed: HashMap::default(),
            heap: 0,
            used: Used::new(),
        }
    }

    pub fn get(&self, state: u32) -> &M::State {
        &self.states[state as usize]
    }

    pub fn intern(&mut self, state: M::State) -> u32 {
        if let Some(&i) = self.by_state.get(&state) {
            return i;
        }
        let i = self.states.len() as u32;
        self.heap += self.model.heap(&state) as u64;
        self.by_state.insert(state.clone(), i);
        self.states.push(state);
        if self.classes.len() <= TABLE {
            self.rows.push(vec![MISSING; self.classes.len()]);
        }
        i
    }

    /// State after an operation of a class: a state, [`NO`], or [`MISSING`].
    pub fn look(&self, state: u32, class: u32) -> u32 {
        match self.rows.get(state as usize) {
            Some(row) => row[class as usize],
            None => self.hashed.get(&(state, class)).copied().unwrap_or(MISSING),
        }
    }

    /// What the model says, without remembering it.
    pub fn compute(&self, state: u32, class: u32) -> Option<M::State> {
        let op = &self.ops[self.classes[class as usize].op as usize].op;
        self.model.step(&self.states[state as usize], op)
    }

    pub fn remember(&mut self, state: u32, class: u32, next: Option<M::State>) -> u32 {
        let next = next.map_or(NO, |n| self.intern(n));
        match self.rows.get_mut(state as usize) {
            Some(row) => row[class as usize] = next,
            None => {
                self.hashed.insert((state, class), next);
            }
        }
        next
    }

    pub fn step(&mut self, state: u32, class: u32) -> u32 {
        match self.look(state, class) {
            MISSING => {
                let next = self.compute(state, class);
                self.remember(state, class, next)
            }
            next => next,
        }
    }

    /// Rough bytes held: states count as their size plus what a small heap part takes.
    pub fn bytes(&self) -> u64 {
        let each = 2 * size_of::<M::State>() + 64 + 5 * self.classes.len().min(TABLE);
        2 * self.heap
            + (self.states.len() * each + self.hashed.capacity() * 13) as u64
            + self.used.bytes()
    }
}

/// Sets of used optional operations: sorted (class, count) pairs, by number; 0 is the empty one.
pub(crate) struct Used {
    by_set: HashMap<Set, u32, Hash>,
    sets: Vec<Set>,
    more: HashMap<(u32, u32), u32, Hash>,
}

type Set = SmallVec<[(u32, u32); 3]>;

impl Used {
    fn new() -> Self {
        let empty = Set::new();
        Used {
            by_set: HashMap::from_iter([(empty.clone(), 0)]),
            sets: vec![empty],
            more: HashMap::default(),
        }
    }

    pub fn count(&self, set: u32, class: u32) -> u32 {
        let set = &self.sets[set as usize];
        set.iter().find(|e| e.0 == class).map_or(0, |e| e.1)
    }

    /// Whether nothing optional was ever used.
    pub fn is_trivial(&self) -> bool {
        self.sets.len() == 1
    }

    pub fn total(&self, set: u32) -> u32 {
        self.sets[set as usize].iter().map(|e| e.1).sum()
    }

    /// `Some` if this successor is already known.
    pub fn look(&self, set: u32, class: u32) -> Option<u32> {
        self.more.get(&(set, class)).copied()
    }

    /// The set with one more of a class.
    pub fn add(&mut self, set: u32, class: u32) -> u32 {
        if let Some(next) = self.look(set, class) {
            return next;
        }
        let mut next = self.sets[set as usize].clone();
        match next.binary_search_by_key(&class, |e| e.0) {
            Ok(i) => next[i].1 += 1,
            Err(i) => next.insert(i, (class, 1)),
        }
        let fresh = self.sets.len() as u32;
        let number = *self.by_set.entry(next.clone()).or_insert(fresh);
        if number == fresh {
            self.sets.push(next);
        }
        self.more.insert((set, class), number);
        number
    }

    /// Whether `a` uses no more of anything than `b`.
    pub fn within(&self, a: u32, b: u32) -> bool {
        if a == b || a == 0 {
            return true;
        }
        let (a, b) = (&self.sets[a as usize], &self.sets[b as usize]);
        let mut rest = b.iter();
        a.iter().all(|x| rest.any(|y| y.0 == x.0 && y.1 >= x.1))
    }

    fn bytes(&self) -> u64 {
        (self.sets.len() * 2 * (size_of::<Set>() + 8) + self.more.capacity() * 13) as u64
    }
}
