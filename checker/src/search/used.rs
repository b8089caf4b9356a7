//! Sets of optional operations that took effect, by number.

use hashbrown::HashMap;
use smallvec::SmallVec;

/// Sorted (class, count) pairs; number 0 is the empty set.
type Set = SmallVec<[(u32, u32); 3]>;

pub(super) struct Used {
    by_set: HashMap<Set, u32, foldhash::fast::RandomState>,
    sets: Vec<Set>,
    totals: Vec<u32>,
    more: HashMap<(u32, u32), u32, foldhash::fast::RandomState>,
}

impl Used {
    pub fn new() -> Self {
        let empty = Set::new();
        Used {
            by_set: HashMap::from_iter([(empty.clone(), 0)]),
            sets: vec![empty],
            totals: vec![0],
            more: HashMap::default(),
        }
    }

    pub fn count(&self, set: u32, class: u32) -> u32 {
        self.sets[set as usize]
            .iter()
            .find(|e| e.0 == class)
            .map_or(0, |e| e.1)
    }

    /// Whether nothing optional was ever used.
    pub fn is_trivial(&self) -> bool {
        self.sets.len() == 1
    }

    pub fn total(&self, set: u32) -> u32 {
        self.totals[set as usize]
    }

    /// The set with one more of a class, if it is known already.
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
            self.totals.push(self.totals[set as usize] + 1);
        }
        self.more.insert((set, class), number);
        number
    }

    /// Whether `a` uses no more of anything than `b`.
    pub fn within(&self, a: u32, b: u32) -> bool {
        if a == b || a == 0 {
            return true;
        }
        if self.totals[a as usize] >= self.totals[b as usize] {
            return false;
        }
        let (a, b) = (&self.sets[a as usize], &self.sets[b as usize]);
        let mut rest = b.iter();
        a.iter().all(|x| rest.any(|y| y.0 == x.0 && y.1 >= x.1))
    }

    pub fn bytes(&self) -> u64 {
        let heap = |s: &Set| if s.spilled() { 8 * s.capacity() } else { 0 };
        let spilled = self.sets.last().map_or(0, heap);
        (self.sets.len() * 2 * (size_of::<Set>() + spilled + 8) + self.more.capacity() * 13) as u64
    }
}
