//! Locks, for the oracle.

use fencepost_history::Value;

use crate::oracle::{Object, Op, int};

/// What a lock is like.
#[derive(Clone, Copy, Debug)]
pub struct Lock {
    pub permits: i128,
    pub owners: bool,
    pub fences: bool,
    pub leased: bool,
    /// An acquire that says "shared" takes one permit, any other takes all.
    pub modes: bool,
    /// How often one owner may take it; 1: it is not re-entrant.
    pub again: i128,
    /// A re-entrant grant has a fence of its own.
    pub raise: bool,
}

pub const LOCK: Lock = Lock {
    permits: 1,
    owners: true,
    fences: false,
    leased: false,
    modes: false,
    again: 1,
    raise: false,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    owner: i128,
    weight: i128,
    depth: i128,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    holds: Vec<Hold>,
    /// Fence of the hold, where there is one.
    token: i128,
    /// The least that the next grant's fence can be.
    next: i128,
}

impl Lock {
    fn weight(&self, op: &Op) -> i128 {
        match self.modes {
            true if op.asked.get("mode").and_then(Value::as_str) == Some("shared") => 1,
            true => self.permits,
            false => int(&op.asked, "weight").unwrap_or(1),
        }
    }

    fn owner(&self, op: &Op) -> i128 {
        int(&op.asked, "owner").filter(|_| self.owners).unwrap_or(0)
    }

    /// States after a grant, whatever its fence.
    fn taken(&self, s: &State, op: &Op) -> Option<State> {
        let (owner, weight) = (self.owner(op), self.weight(op));
        let mut next = s.clone();
        if let Some(mine) = next
            .holds
            .iter_mut()
            .find(|h| self.owners && h.owner == owner)
        {
            mine.depth += 1;
            return (mine.depth <= self.again).then_some(next);
        }
        let load: i128 = s.holds.iter().map(|h| h.weight).sum();
        next.holds.push(Hold {
            owner,
            weight,
            depth: 1,
        });
        next.holds.sort_unstable_by_key(|h| (h.owner, h.weight));
        (load + weight <= self.permits).then_some(next)
    }

    fn acquire(&self, s: &State, op: &Op, fences: &[i128]) -> Vec<State> {
        if op.failed {
            let busy = self.leased || self.taken(s, op).is_none();
            return busy.then(|| s.clone()).into_iter().collect();
        }
        let mut from = s.clone();
        if self.leased {
            from.holds.clear();
        }
        let Some(taken) = self.taken(&from, op) else {
            return Vec::new();
        };
        let said = op.ret.and_then(|_| int(&op.answer, "fence"));
        let again = taken.holds.len() == from.holds.len();
        match (self.fences, again && !self.raise, said) {
            (false, ..) | (true, true, None) => vec![taken],
            (true, true, Some(f)) => (f == s.token).then_some(taken).into_iter().collect(),
            (true, false, Some(f)) if f < s.next => Vec::new(),
            (true, false, Some(f)) => vec![with(&taken, f)],
            // Nobody knows which: as low as can be, one that is named, or one that is not.
            (true, false, None) => {
                let near = fences.iter().flat_map(|f| [*f, f + 1]);
                let any = near.chain([s.next, s.next + 1]).filter(|f| *f >= s.next);
                any.map(|f| with(&taken, f)).collect()
            }
        }
    }

    fn release(&self, s: &State, op: &Op) -> Option<State> {
        let owner = self.owner(op);
        let named = int(&op.asked, "fence").is_none_or(|f| f == s.token);
        let mine = s.holds.iter().position(|h| h.owner == owner && named);
        let mut next = s.clone();
        if let Some(i) = mine {
            next.holds[i].depth -= 1;
            next.holds.retain(|h| h.depth > 0);
        }
        let held = op.answer.get("held").and_then(Value::as_bool);
        match (op.ret.is_some(), held) {
            (false, _) => Some(next),
            (true, Some(false)) if !self.owners => Some(s.clone()),
            // What is not held any more had expired.
            (true, Some(false)) => (self.leased || mine.is_none()).then_some(next),
            (true, _) => mine.map(|_| next),
        }
    }
}

fn with(s: &State, fence: i128) -> State {
    State {
        token: fence,
        next: fence + 1,
        ..s.clone()
    }
}

impl Object for Lock {
    type State = State;

    fn start(&self) -> State {
        State::default()
    }

    fn steps(&self, s: &State, op: &Op, fences: &[i128]) -> Vec<State> {
        match (op.f.as_str(), op.ret) {
            ("acquire", _) => self.acquire(s, op, fences),
            ("release", _) => self.release(s, op).into_iter().collect(),
            (_, None) => vec![s.clone()],
            (_, Some(_)) => {
                let held = op.answer.get("held").and_then(Value::as_bool);
                let fits = self.leased || held == Some(!s.holds.is_empty());
                fits.then(|| s.clone()).into_iter().collect()
            }
        }
    }

    fn told(&self, state: &serde_json::Value, fences: &[i128]) -> Vec<State> {
        let number = |v: &serde_json::Value| v.as_i64().map(i128::from);
        let hold = |h: &serde_json::Value| Hold {
            owner: h["owner"].as_str().and_then(|o| o.parse().ok()).unwrap(),
            weight: number(&h["weight"]).unwrap_or(self.permits),
            depth: number(&h["depth"]).unwrap_or(1),
        };
        let mut holds: Vec<Hold> = match (&state["taken"], &state["holds"]) {
            (_, serde_json::Value::Array(holds)) => holds.iter().map(hold).collect(),
            (taken, _) => (0..taken.as_u64().unwrap())
                .map(|_| Hold {
                    owner: 0,
                    weight: 1,
                    depth: 1,
                })
                .collect(),
        };
        holds.sort_unstable_by_key(|h| (h.owner, h.weight));
        let free = State {
            holds,
            ..State::default()
        };
        let Some(last) = number(&state["fence"]) else {
            return vec![free];
        };
        let exact = state["exact"].as_bool().unwrap();
        let above = fences.iter().flat_map(|f| [*f, f + 1]);
        let any = above.filter(|f| !exact && *f > last).chain([last]);
        any.map(|f| with(&free, f)).collect()
    }
}
