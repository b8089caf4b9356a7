//! Sharing of short strings that a history repeats on every line.

use std::hash::BuildHasher;
use std::sync::Arc;

const SLOTS: usize = 4096;
const LONGEST: usize = 48;

/// A direct-mapped cache of strings: bounded, so that a stream of unique owners
/// costs no memory; a collision only costs an allocation.
pub(crate) struct Interner {
    slots: Vec<Option<Arc<str>>>,
    hasher: foldhash::fast::FixedState,
}

impl Default for Interner {
    fn default() -> Self {
        Interner {
            slots: vec![None; SLOTS],
            hasher: foldhash::fast::FixedState::default(),
        }
    }
}

impl Interner {
    pub fn get(&mut self, s: &str) -> Arc<str> {
        if s.len() > LONGEST {
            return Arc::from(s);
        }
        let slot = self.hasher.hash_one(s) as usize % SLOTS;
        match &self.slots[slot] {
            Some(held) if &**held == s => held.clone(),
            _ => {
                let fresh: Arc<str> = Arc::from(s);
                self.slots[slot] = Some(fresh.clone());
                fresh
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_stays_right_under_collisions() {
        let mut i = Interner::default();
        assert!(Arc::ptr_eq(&i.get("acquire"), &i.get("acquire")));
        for n in 0..20_000 {
            let s = n.to_string();
            assert_eq!(&*i.get(&s), s);
        }
        assert_eq!(i.slots.len(), SLOTS);
    }
}
