//! A map in parts that its copies share: a snapshot's copy is made at once, and what changes while it is written copies its own
//! part only. With a million locks under one map, nothing else could be done for as long as they are written out.

use std::borrow::Borrow;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use foldhash::fast::FixedState;
use foldhash::{HashMap, HashMapExt};

/// So many that a part of a large map is copied in well under a millisecond.
const PARTS: usize = 1024;
/// For the choice of the part alone: within it, the map's own hash is another.
const CHOICE: FixedState = FixedState::with_seed(0);

/// A hash map that is cheap to clone.
#[derive(Debug, Clone)]
pub struct Shards<K, V> {
    parts: Vec<Arc<HashMap<K, V>>>,
    len: usize,
}

impl<K, V> Default for Shards<K, V> {
    fn default() -> Self {
        let parts = (0..PARTS).map(|_| Arc::new(HashMap::new())).collect();
        Shards { parts, len: 0 }
    }
}

fn part_of<Q: Hash + ?Sized>(key: &Q) -> usize {
    CHOICE.hash_one(key) as usize % PARTS
}

impl<K, V> Shards<K, V> {
    /// How many.
    pub fn len(&self) -> usize {
        self.len
    }

    /// All, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.parts.iter().flat_map(|part| part.iter())
    }

    /// None any more.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Shards<K, V> {
    /// The value of a key.
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.parts[part_of(key)].get(key)
    }

    /// The value of a key, with the key as it is kept.
    pub fn get_key_value<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.parts[part_of(key)].get_key_value(key)
    }

    /// Is there such a key?
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.get(key).is_some()
    }

    /// The part that has this key, to be changed. A shared one is not copied for what is not in it.
    fn own<Q>(&mut self, key: &Q) -> Option<&mut HashMap<K, V>>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let part = &mut self.parts[part_of(key)];
        let has = Arc::get_mut(part).is_some() || part.contains_key(key);
        has.then(|| Arc::make_mut(part))
    }

    /// The value of a key, to be changed.
    pub fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.own(key)?.get_mut(key)
    }

    /// The value of a key, made if there is none.
    pub fn or_default(&mut self, key: &K) -> &mut V
    where
        V: Default,
    {
        let part = Arc::make_mut(&mut self.parts[part_of(key)]);
        match part.entry(key.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                self.len += 1;
                new.insert(V::default())
            }
        }
    }

    /// Sets the value of a key.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let part = Arc::make_mut(&mut self.parts[part_of(&key)]);
        let before = part.insert(key, value);
        self.len += usize::from(before.is_none());
        before
    }

    /// Takes a key out.
    pub fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let removed = self.own(key)?.remove(key);
        self.len -= usize::from(removed.is_some());
        removed
    }

    /// All values, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        let parts = self.parts.iter_mut();
        parts.flat_map(|part| Arc::make_mut(part).values_mut())
    }
}

impl<K: Eq + Hash, V: PartialEq> PartialEq for Shards<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.parts == other.parts
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_copy_shares_what_does_not_change() {
        let mut map: Shards<u64, u64> = Shards::default();
        for key in 0..10_000 {
            map.insert(key, key);
        }
        let copy = map.clone();
        map.insert(3, 0);
        assert_eq!(map.remove(&20_000), None);
        assert_eq!(map.get_mut(&20_000), None);
        let shared = map.parts.iter().zip(&copy.parts);
        let own = shared.filter(|(one, other)| !Arc::ptr_eq(one, other));
        assert_eq!(own.count(), 1);
        assert_eq!((copy.get(&3), map.get(&3)), (Some(&3), Some(&0)));
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0u8..5, 0u16..40, any::<u32>()), 0..200)) {
            let (mut map, mut model) = (Shards::default(), BTreeMap::new());
            let mut copies = Vec::new();
            for (what, key, value) in steps {
                match what {
                    0 => prop_assert_eq!(map.insert(key, value), model.insert(key, value)),
                    1 => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                    2 => {
                        *map.or_default(&key) ^= value;
                        *model.entry(key).or_default() ^= value;
                    }
                    3 => {
                        let (one, other) = (map.get_mut(&key), model.get_mut(&key));
                        prop_assert_eq!(&one, &other);
                        one.into_iter().chain(other).for_each(|number| *number = value);
                    }
                    _ => copies.push((map.clone(), model.clone())),
                }
            }
            copies.push((map, model));
            for (map, model) in copies {
                prop_assert_eq!(map.len(), model.len());
                let all: BTreeMap<u16, u32> = map.iter().map(|(key, value)| (*key, *value)).collect();
                prop_assert_eq!(all, model);
            }
        }
    }
}
