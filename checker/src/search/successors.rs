//! One step from a configuration.

use std::sync::Arc;

use super::config::{Config, Mask, clear, has, set};
use super::guide::{Ahead, Guide};
use super::plan::{Class, Plan};
use super::states::{MISSING, NO, Tables};

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
    /// Slots whose operation is allowed in every state.
    total: Mask<W>,
    /// Optional classes: how many were offered, whether they overwrite.
    offers: Vec<(u32, u32, bool)>,
    classes: Arc<[Class]>,
    /// Reads ahead, by part.
    pub guides: Vec<Vec<Guide>>,
    pub now: u64,
    ahead: Arc<Vec<Vec<Ahead>>>,
}

impl<const W: usize> Around<W> {
    pub fn new(plan: &Plan) -> Self {
        let classes = plan.classes.as_slice().into();
        Around {
            pending: Vec::new(),
            total: [0; W],
            offers: Vec::new(),
            classes,
            guides: Vec::new(),
            now: 0,
            ahead: Arc::new(plan.guides.ahead.clone()),
        }
    }

    pub fn add(&mut self, slot: u32, class: u32) {
        let c = self.classes[class as usize];
        if c.total {
            set(&mut self.total, slot);
        }
        self.pending.push(Pending {
            slot,
            class,
            read: c.read,
            blind: c.blind,
        });
    }

    /// Fading needs the tables to itself.
    pub fn has_guides(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Whether a configuration can have very many successors.
    pub fn wide(&self) -> bool {
        self.pending.len() + self.offers.len() > 64
    }

    pub fn has_offers(&self) -> bool {
        !self.offers.is_empty()
    }

    pub fn remove(&mut self, slot: u32) {
        self.pending.retain(|p| p.slot != slot);
        clear(&mut self.total, slot);
    }

    pub fn offer(&mut self, class: u32) {
        match self.offers.iter_mut().find(|o| o.0 == class) {
            Some(o) => o.1 += 1,
            None => self
                .offers
                .push((class, 1, self.classes[class as usize].blind)),
        }
    }

    /// The part that a class touches, and all reads of it.
    fn reads(&self, class: u32) -> Option<(u32, &[Ahead])> {
        let part = self.classes[class as usize].part?;
        Some((part, self.ahead.get(part as usize)?))
    }

    /// Whether a read ahead of the part that `class` touched is out of reach.
    fn hopeless(&self, c: &Config<W>, class: u32, precludes: impl Fn(u32, u32) -> bool) -> bool {
        let part = self.classes[class as usize].part;
        let Some(guides) = part.and_then(|p| self.guides.get(p as usize)) else {
            return false;
        };
        guides.iter().any(|g| {
            g.slot.is_none_or(|s| !has(&c.done, s))
                && g.resets.iter().all(|&s| has(&c.done, s))
                && precludes(c.state, g.class)
        })
    }
}

/// Transitions and sets, either computed on demand or only looked up.
pub(super) trait Lookup {
    /// A state, `NO`, or `MISSING` if it is not known yet.
    fn step(&mut self, state: u32, class: u32) -> u32;
    fn add(&mut self, set: u32, class: u32) -> Option<u32>;
    fn count(&self, set: u32, class: u32) -> u32;
    fn precludes(&self, state: u32, class: u32) -> bool;
    /// The state, or the one that it fades to if it leaves no read possible for which `is` holds.
    fn fade(&mut self, state: u32, part: u32, reads: &[Ahead], is: impl Fn(&Ahead) -> bool) -> u32;
}

/// Computes what is missing.
pub(super) struct Live<'s, 'a>(pub &'s mut Tables<'a>);

impl Lookup for Live<'_, '_> {
    fn step(&mut self, state: u32, class: u32) -> u32 {
        self.0.step(state, class)
    }
    fn add(&mut self, set: u32, class: u32) -> Option<u32> {
        Some(self.0.used.add(set, class))
    }
    fn count(&self, set: u32, class: u32) -> u32 {
        self.0.used.count(set, class)
    }
    fn precludes(&self, state: u32, class: u32) -> bool {
        self.0.space.precludes(state, class)
    }
    fn fade(&mut self, state: u32, part: u32, reads: &[Ahead], is: impl Fn(&Ahead) -> bool) -> u32 {
        if self.0.any_live(state, part, reads, is) {
            state
        } else {
            self.0.space.fade(state, part)
        }
    }
}

/// Notes what is missing.
pub(super) struct Seen<'s, 'a> {
    tables: &'s Tables<'a>,
    pub steps: Vec<(u32, u32)>,
    pub sets: Vec<(u32, u32)>,
}

impl<'s, 'a> Seen<'s, 'a> {
    pub fn new(tables: &'s Tables<'a>) -> Self {
        Seen {
            tables,
            steps: Vec::new(),
            sets: Vec::new(),
        }
    }
}

impl Lookup for Seen<'_, '_> {
    fn step(&mut self, state: u32, class: u32) -> u32 {
        let next = self.tables.look(state, class);
        if next == MISSING && self.steps.last() != Some(&(state, class)) {
            self.steps.push((state, class));
        }
        next
    }
    fn add(&mut self, set: u32, class: u32) -> Option<u32> {
        let next = self.tables.used.look(set, class);
        if next.is_none() {
            self.sets.push((set, class));
        }
        next
    }
    fn count(&self, set: u32, class: u32) -> u32 {
        self.tables.used.count(set, class)
    }
    fn precludes(&self, state: u32, class: u32) -> bool {
        self.tables.space.precludes(state, class)
    }
    fn fade(&mut self, state: u32, _: u32, _: &[Ahead], _: impl Fn(&Ahead) -> bool) -> u32 {
        state
    }
}

/// Moves to `state` by an operation of `class`, then takes every pending read
/// that it allows. `None` if that is a dead end.
fn arrive<L: Lookup, const W: usize>(
    look: &mut L,
    around: &Around<W>,
    mut c: Config<W>,
    state: u32,
    class: u32,
    blind: bool,
) -> Option<Config<W>> {
    c.state = state;
    c.quiet = blind;
    if blind {
        for w in 0..W {
            c.free[w] |= around.total[w] & !c.done[w];
        }
    }
    for r in around.pending.iter().filter(|p| p.read) {
        if !has(&c.done, r.slot) && !matches!(look.step(state, r.class), NO | MISSING) {
            set(&mut c.done, r.slot);
            c.quiet = false;
        }
    }
    if around.hopeless(&c, class, |state, class| look.precludes(state, class)) {
        return None;
    }
    if let Some((part, reads)) = around.reads(class) {
        let open =
            |r: &Ahead| r.ret >= around.now && (r.call > around.now || !has(&c.done, r.slot));
        c.state = look.fade(state, part, reads, open);
    }
    Some(c)
}

/// Every configuration one known operation further.
pub(super) fn known<L: Lookup, const W: usize>(
    look: &mut L,
    around: &Around<W>,
    c: &Config<W>,
    out: &mut Vec<Config<W>>,
) {
    for p in around.pending.iter().filter(|p| !p.read) {
        if has(&c.done, p.slot) || (c.quiet && p.blind) {
            continue;
        }
        let next = look.step(c.state, p.class);
        if next == NO || next == MISSING {
            continue;
        }
        let mut moved = *c;
        set(&mut moved.done, p.slot);
        clear(&mut moved.free, p.slot);
        out.extend(arrive(look, around, moved, next, p.class, p.blind));
    }
}

/// Every configuration one optional operation further; where it is late, some of them, which nobody will use.
pub(super) fn optional<L: Lookup, const W: usize>(
    look: &mut L,
    around: &Around<W>,
    c: &Config<W>,
    late: &dyn Fn() -> bool,
    out: &mut Vec<Config<W>>,
) {
    for (n, &(class, offered, blind)) in around.offers.iter().enumerate() {
        if n % 256 == 255 && late() {
            return;
        }
        if c.quiet && blind {
            continue;
        }
        let next = look.step(c.state, class);
        if next == NO || next == MISSING || (next == c.state && !blind) {
            continue;
        }
        if look.count(c.used, class) >= offered {
            continue;
        }
        if let Some(used) = look.add(c.used, class) {
            out.extend(arrive(
                look,
                around,
                Config { used, ..*c },
                next,
                class,
                blind,
            ));
        }
    }
}
