//! Reads that lie ahead and rule states out already now.
//!
//! Where a part of the state only grows (see `Model::part`), every state from
//! which a coming read cannot be reached is a dead end, unless something that
//! could make that read possible again may still take effect before it. So a
//! read guides the search once all such resets were called, in every
//! configuration in which they have taken effect, until its own return. This
//! turns the orders of k pending appends from k! into the few that the next
//! read agrees with.
//!
//! And a state that rules out every read still to come is as good as any other
//! such: they are made one, which no order of appends that nobody sees multiplies.

use crate::ops::NEVER;

/// An operation on a part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    pub part: u32,
    pub call: u64,
    pub ret: u64,
    pub slot: u32,
    pub class: u32,
    pub read: bool,
    pub op: u32,
}

#[derive(Clone, Debug)]
struct Read {
    it: Touch,
    /// It guides after this stamp, at which the last reset was called.
    after: u64,
    /// Slot and return of each reset that is not over before `after`.
    resets: Vec<(u32, u64)>,
}

/// Reads of each part, by return.
#[derive(Debug, Default)]
pub(super) struct Guides {
    parts: Vec<Vec<Read>>,
    /// The same, without what guiding needs.
    pub ahead: Vec<Vec<Ahead>>,
}

/// A read of a part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    pub call: u64,
    pub ret: u64,
    pub slot: u32,
    pub class: u32,
}

/// A read that a state must not rule out, unless it is done already or a reset is not.
#[derive(Clone, Debug)]
pub(super) struct Guide {
    pub class: u32,
    pub op: u32,
    /// Where it is pending already.
    pub slot: Option<u32>,
    /// Slots of pending resets.
    pub resets: Vec<u32>,
}

/// Guides consulted per part: the first may be done where the next is not.
pub(crate) const DEEP: usize = 6;
/// Operations before a read that are looked at for resets; more, and it does not guide.
const LOOK: usize = 4096;

impl Guides {
    /// Operations must come by call. `resets` says of two classes whether the
    /// first can make a read of the second possible.
    pub fn new(touches: impl Iterator<Item = Touch>, resets: &dyn Fn(u32, u32) -> bool) -> Guides {
        let mut parts: Vec<Vec<Touch>> = Vec::new();
        for t in touches {
            if parts.len() <= t.part as usize {
                parts.resize_with(t.part as usize + 1, Default::default);
            }
            parts[t.part as usize].push(t);
        }
        let parts: Vec<Vec<Read>> = parts.iter().map(|p| reads(p, resets)).collect();
        let ahead = |r: &Read| Ahead {
            call: r.it.call,
            ret: r.it.ret,
            slot: r.it.slot,
            class: r.it.class,
        };
        let ahead = parts
            .iter()
            .map(|p| p.iter().map(ahead).collect())
            .collect();
        Guides { parts, ahead }
    }

    /// Guides of each part at a moment.
    pub fn at(&self, now: u64) -> Vec<Vec<Guide>> {
        let guide = |r: &Read| Guide {
            class: r.it.class,
            op: r.it.op,
            slot: (r.it.call < now).then_some(r.it.slot),
            resets: r
                .resets
                .iter()
                .filter(|x| x.1 >= now)
                .map(|x| x.0)
                .collect(),
        };
        let guides = |reads: &Vec<Read>| {
            let next = reads.partition_point(|r| r.it.ret < now);
            let coming = reads[next..].iter().take(DEEP).filter(|r| r.after < now);
            coming.map(guide).collect()
        };
        self.parts.iter().map(guides).collect()
    }
}

fn reads(touches: &[Touch], resets: &dyn Fn(u32, u32) -> bool) -> Vec<Read> {
    // A part that is only read and never written in pieces needs no guide.
    let writes: Vec<&Touch> = touches.iter().filter(|t| !t.read).collect();
    let mut all = Vec::new();
    for it in touches.iter().filter(|t| t.read && t.ret != NEVER) {
        let before = writes.partition_point(|w| w.call < it.ret);
        let (mut after, mut open) = (0, Vec::new());
        // Resets that returned long ago no longer matter when the read could guide.
        for w in writes[..before]
            .iter()
            .rev()
            .take(LOOK)
            .filter(|w| resets(w.class, it.class))
        {
            after = after.max(if w.ret == NEVER { NEVER } else { w.call });
            open.push((w.slot, w.ret));
        }
        if before > LOOK {
            after = NEVER;
        }
        all.push(Read {
            it: *it,
            after,
            resets: open,
        });
    }
    all.sort_unstable_by_key(|r| r.it.ret);
    all
}
