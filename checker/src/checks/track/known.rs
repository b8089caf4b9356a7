//! Which (key, owner, fence) an acquire ever returned, in bounded memory.

use std::hash::{BuildHasher, Hasher};

use fencepost_history::Value;
use hashbrown::HashSet;

use super::KeyId;

/// Entries of one generation; two are kept.
const GENERATION: usize = 1 << 20;

#[derive(Default)]
pub struct Known {
    young: HashSet<u64, foldhash::fast::FixedState>,
    old: HashSet<u64, foldhash::fast::FixedState>,
    forgot: bool,
}

impl Known {
    pub fn insert(&mut self, key: KeyId, owner: &Value, fence: Option<u64>) {
        if self.young.len() >= GENERATION {
            self.forgot |= !self.old.is_empty();
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(hash(key, owner, fence));
        // Operations may name the grant by its owner alone, or by its fence alone.
        self.young.insert(hash(key, owner, None));
        self.young.insert(hash(key, &Value::Null, fence));
    }

    /// `Some(false)`: surely never returned. `None`: too long ago to tell.
    pub fn contains(&self, key: KeyId, owner: &Value, fence: Option<u64>) -> Option<bool> {
        let h = hash(key, owner, fence);
        if self.young.contains(&h) || self.old.contains(&h) {
            return Some(true);
        }
        (!self.forgot).then_some(false)
    }
}

fn hash(key: KeyId, owner: &Value, fence: Option<u64>) -> u64 {
    let mut h = foldhash::fast::FixedState::default().build_hasher();
    h.write_u32(key);
    hash_value(owner, &mut h);
    h.write_u64(fence.map_or(u64::MAX, |f| f ^ 0x5bd1_e995));
    h.finish()
}

/// A hash of the value's meaning; lists and maps by their JSON text.
pub fn hash_value(v: &Value, h: &mut impl Hasher) {
    match v {
        Value::Null => h.write_u8(0),
        Value::Int(i) => h.write_i128(*i),
        Value::Str(s) => h.write(s.as_bytes()),
        other => {
            let mut text = Vec::new();
            fencepost_history::json::write_value(&mut text, other);
            h.write(&text);
        }
    }
}

/// As `hash_value`, finished.
pub fn value_hash(v: &Value) -> u64 {
    let mut h = foldhash::fast::FixedState::default().build_hasher();
    hash_value(v, &mut h);
    h.finish()
}
