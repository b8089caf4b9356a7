//! Sets of configurations, without those that others cover.

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::config::Config;
use super::used::Used;

/// How many configurations each is compared with at most.
const COMPARE: usize = 128;

type Hash = foldhash::fast::RandomState;

/// Configurations that one return has visited: for each, the least sets used.
pub(super) struct Visited<const W: usize> {
    least: HashMap<Config<W>, SmallVec<[u32; 2]>, Hash>,
    /// Sets kept for each.
    keep: usize,
    /// Something was turned away for want of room.
    pub narrowed: bool,
}

impl<const W: usize> Visited<W> {
    pub fn new(keep: usize) -> Self {
        Visited {
            least: HashMap::default(),
            keep,
            narrowed: false,
        }
    }

    /// True unless the same was visited with no more used, or too often.
    pub fn insert(&mut self, c: &Config<W>, used: &Used) -> bool {
        let sets = self.least.entry(Config { used: 0, ..*c }).or_default();
        if sets.iter().take(COMPARE).any(|&s| used.within(s, c.used)) {
            return false;
        }
        if sets.len() >= self.keep {
            self.narrowed = true;
            return false;
        }
        sets.push(c.used);
        true
    }
}

/// Less is better: fewer operations spent.
fn rank<const W: usize>(c: &Config<W>, used: &Used) -> u32 {
    c.weight() + 2 * used.total(c.used)
}

/// Drops what another configuration covers. Order of the result depends on the set only.
pub(super) fn prune<const W: usize>(mut all: Vec<Config<W>>, used: &Used) -> Vec<Config<W>> {
    if all.len() < 2 {
        return all;
    }
    if used.is_trivial() {
        all.sort_unstable_by_key(|c| (c.state, c.weight(), c.done, c.free.map(|w| !w)));
    } else {
        all.sort_by_cached_key(|c| (c.state, rank(c, used), c.used, c.done, c.free.map(|w| !w)));
    }
    all.dedup();
    let mut kept: Vec<Config<W>> = Vec::with_capacity(all.len());
    let mut group = 0;
    for c in all {
        if kept
            .get(group)
            .is_some_and(|k: &Config<W>| k.state != c.state)
        {
            group = kept.len();
        }
        let covered = |k: &Config<W>| k.covers(&c) && used.within(k.used, c.used);
        if !kept[group..].iter().take(COMPARE).any(covered) {
            kept.push(c);
        }
    }
    kept
}

/// Keeps at most `each` that differ only in what they used, then the `width`
/// best in all. True if something was dropped.
pub(super) fn thin<const W: usize>(
    all: &mut Vec<Config<W>>,
    each: usize,
    width: usize,
    used: &Used,
) -> bool {
    let before = all.len();
    if before > each && !used.is_trivial() {
        let mut seen: HashMap<Config<W>, usize, Hash> = HashMap::default();
        all.retain(|c| {
            let n = seen.entry(Config { used: 0, ..*c }).or_default();
            *n += 1;
            *n <= each
        });
    }
    if all.len() > width {
        all.sort_by_cached_key(|c| (rank(c, used), c.state, c.used, c.done, c.free));
        all.truncate(width);
    }
    all.len() < before
}
