//! Oracle: tries every order. For histories of a dozen operations.
//!
//! Shares nothing with the engines but the [`Model`]: it is what they are
//! tested against, and what confirms that a witness alone is illegal.

use std::collections::HashSet;

use crate::model::Model;
use crate::ops::Timed;

/// Whether some order of all known operations and some of the optional ones
/// keeps real time and is legal, from any of `starts`. At most 64 operations.
///
/// Wing and Gong 1993: pick any operation that no unpicked one precedes.
pub fn linearizable<M: Model>(model: &M, ops: &[Timed<M::Op>], starts: &[M::State]) -> bool {
    assert!(ops.len() <= 64, "the oracle takes at most 64 operations");
    let known = (0..ops.len())
        .filter(|&i| !ops[i].is_optional())
        .fold(0u64, |m, i| m | 1 << i);
    let mut seen: HashSet<(u64, M::State)> = HashSet::new();
    let mut todo: Vec<(u64, M::State)> = starts.iter().map(|s| (0, s.clone())).collect();
    while let Some((done, state)) = todo.pop() {
        if done & known == known {
            return true;
        }
        let left = |i: &usize| done >> i & 1 == 0;
        let first_ret = (0..ops.len())
            .filter(left)
            .map(|i| ops[i].ret)
            .min()
            .unwrap_or(u64::MAX);
        for i in (0..ops.len()).filter(left) {
            if ops[i].call < first_ret
                && let Some(next) = model.step(&state, &ops[i].op)
                && seen.insert((done | 1 << i, next.clone()))
            {
                todo.push((done | 1 << i, next));
            }
        }
    }
    false
}
