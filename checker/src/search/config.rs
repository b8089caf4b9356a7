//! A configuration: where the object is and which pending operations got it there.

/// One bit a slot.
pub(crate) type Mask<const W: usize> = [u64; W];

/// Everything about the past that the future can depend on.
///
/// A pending operation is *done* (it took effect and was seen to), *free* (an
/// overwriting operation took effect while it was pending, just before which it
/// can be put, unseen; it may instead still take effect later), or neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Config<const W: usize> {
    pub done: Mask<W>,
    pub free: Mask<W>,
    pub state: u32,
    /// Optional operations that took effect.
    pub used: u32,
    /// The last step was an overwriting operation that nothing has seen yet.
    pub quiet: bool,
}

pub(crate) fn has<const W: usize>(mask: &Mask<W>, slot: u32) -> bool {
    mask[slot as usize / 64] >> (slot % 64) & 1 == 1
}

pub(crate) fn set<const W: usize>(mask: &mut Mask<W>, slot: u32) {
    mask[slot as usize / 64] |= 1 << (slot % 64);
}

pub(crate) fn clear<const W: usize>(mask: &mut Mask<W>, slot: u32) {
    mask[slot as usize / 64] &= !(1 << (slot % 64));
}

impl<const W: usize> Config<W> {
    /// Without the slot of an operation that returned.
    pub fn forget(mut self, slot: u32) -> Self {
        clear(&mut self.done, slot);
        clear(&mut self.free, slot);
        self.quiet = false;
        self
    }

    /// Whether, in the same state and with no more used, everything that `other`
    /// can still do this one can do too: each pending operation is free here, or
    /// as it is there.
    pub fn covers(&self, other: &Self) -> bool {
        (0..W).all(|w| {
            let differs = self.done[w] ^ other.done[w] | other.free[w];
            differs & !self.free[w] == 0
        })
    }

    pub fn weight(&self) -> u32 {
        self.done.iter().map(|w| w.count_ones()).sum()
    }
}
