//! After the faults end: a dead or silent holder's lock, asked for all the while, is granted within the
//! granted TTL + lock-delay, × the allowed factor. Also between faults, as long as none is in force.
//!
//! The clock of a key starts when the last thing happened that may have prolonged a hold: a release
//! answered, a loss told, the holder's death, an acquire of unknown outcome, the heal marker. While a live
//! worker holds the lock and was not heard to lose it, no clock runs.

use fencepost_history::EventType;
use hashbrown::{HashMap, HashSet};

use super::finding::{Findings, Otherwise, plural, seconds};
use super::track::{F, Grant, Interval, KeyId, Op, Stamp, Tracker, What, nanos};
use super::{Check, Cx, Entry, Finding, Results};
use crate::judge::facts::Facts;

pub const ENTRY: Entry = Entry {
    name: "freed-in-time",
    about: "a dead or silent holder's lock is not granted within TTL + lock-delay",
    new: |facts| Box::new(FreedInTime::new(facts)),
    live: Some(|facts| Box::new(FreedInTime::new(facts))),
};

#[derive(Default)]
struct Key {
    /// Start of the clock, and why.
    base: Stamp,
    why: &'static str,
    /// Somebody died or lost the lock since the last grant.
    orphaned: bool,
    /// Not granted by the deadline; taken back if an acquire that was open then turns out granted.
    suspect: Option<(Stamp, Finding)>,
}

struct FreedInTime {
    findings: Findings,
    keys: HashMap<KeyId, Key>,
    dead: HashSet<u32>,
    ttl: i64,
    leases: bool,
    delay: i64,
    factor: f64,
    /// When liveness began to be demanded; `None` while faults are in force.
    calm: Option<Stamp>,
    /// Nobody is expected to ask, or to be answered, any more.
    over: bool,
    exercised: u64,
}

impl FreedInTime {
    fn new(facts: &Facts) -> Self {
        FreedInTime {
            findings: Findings::default(),
            keys: HashMap::new(),
            dead: HashSet::new(),
            ttl: nanos(facts.lease.ttl_ms.unwrap_or(0.0)),
            leases: false,
            delay: nanos(facts.system.lock_delay_ms),
            factor: facts.allow.freed_factor.max(1.0),
            calm: Some(Stamp::default()),
            over: false,
            exercised: 0,
        }
    }

    fn restart(&mut self, key: KeyId, at: Stamp, why: &'static str) {
        let k = self.keys.entry(key).or_default();
        if at.time >= k.base.time {
            k.base = at;
            k.why = why;
        }
    }

    /// Start and end of the time within which the lock must be granted.
    fn deadline(&self, key: &Key) -> Option<(Stamp, i64)> {
        let calm = self.calm?;
        let base = if key.base.time > calm.time {
            key.base
        } else {
            calm
        };
        let bound = (self.ttl + self.delay) as f64 * self.factor;
        Some((base, base.time.saturating_add(bound as i64)))
    }

    /// An acquire returned: had it, or should it have, been granted before?
    fn answered(&mut self, cx: &Cx<'_>, op: &Op, kind: EventType) {
        let now = cx.seen.now;
        let granted = cx.seen.granted.and_then(|id| cx.track.grant(id));
        let busy = kind == EventType::Fail
            && cx
                .event
                .error
                .as_deref()
                .is_some_and(|e| e.starts_with("busy"));
        if self.ttl > 0
            && (granted.is_some() || busy)
            && !self.held_by_other(cx, op.key)
            && let Some(k) = self.keys.get(&op.key)
            && let Some((base, end)) = self.deadline(k)
        {
            // Asked for since the clock began, or refused although asked for after its end. (A refusal that was
            // asked for before may have been decided before, and read late.)
            let throughout = granted.is_some() && op.invoke.index <= base.index;
            let after = busy && op.invoke.time > end;
            if now.time > end && (throughout || after) {
                let f = story(op, k, base, end, now, granted);
                if granted.is_some() {
                    self.findings.add(f);
                } else if let Some(k) = self.keys.get_mut(&op.key) {
                    k.suspect.get_or_insert((now, f));
                }
            }
        }
        if let Some(b) = granted {
            self.taken(b);
        }
        if kind == EventType::Info {
            self.restart(op.key, now, "an acquire of unknown outcome returned");
            if let Some(k) = self.keys.get_mut(&op.key) {
                k.suspect = None;
            }
        }
    }

    fn held_by_other(&self, cx: &Cx<'_>, key: KeyId) -> bool {
        cx.track.live_of(key).any(|g| {
            Some(g.id) != cx.seen.granted
                && g.lost.is_none()
                && !g.worker.is_some_and(|w| self.dead.contains(&w))
        })
    }

    /// The lock was granted: suspicions of before fall if this acquire was open then.
    fn taken(&mut self, b: &Grant) {
        self.leases |= b.ttl.is_some();
        self.ttl = self.ttl.max(b.ttl.unwrap_or(0));
        let k = self.keys.entry(b.key).or_default();
        if let Some((at, f)) = k.suspect.take()
            && b.acquire.index > at.index
        {
            self.findings.add(f);
        }
        self.exercised += u64::from(std::mem::take(&mut k.orphaned) && self.calm.is_some());
    }

    fn orphan(&mut self, track: &Tracker, worker: u32, now: Stamp) {
        if !self.dead.insert(worker) {
            return;
        }
        for key in 0..track.keys() {
            if track.live_of(key).any(|g| g.worker == Some(worker)) {
                self.restart(key, now, "its holder died");
                self.keys.entry(key).or_default().orphaned = true;
            }
        }
    }

    fn phase(&mut self, phase: &str, now: Stamp) {
        match phase {
            "faults-end" | "healed" => self.calm = Some(now),
            "drain" | "final" | "end" | "interrupted" => {
                self.calm = None;
                self.over = true;
            }
            _ => {}
        }
    }
}

fn story(op: &Op, k: &Key, base: Stamp, end: i64, now: Stamp, b: Option<&Grant>) -> Finding {
    let outcome = if b.is_some() {
        "granted only"
    } else {
        "refused still"
    };
    let why = if base == k.base && !k.why.is_empty() {
        k.why
    } else {
        "the faults ended"
    };
    let f = Finding::new(format!(
        "{} is {outcome} {} after {why}, {} allowed",
        op.name,
        seconds(now.time - base.time),
        seconds(end.saturating_sub(base.time))
    ))
    .tell(base, why.to_owned())
    .tell(
        op.invoke,
        format!("process {} asks for {}", op.process, op.name),
    )
    .follow(base, end, "by now the lock should have been granted")
    .cite(op.invoke);
    f.tell(now, format!("it is {outcome} now"))
}

/// Whether it may keep a lock from being freed. A dead holder is what this looks for; a dead server frees nothing; and
/// what affects nobody (a copy of a disk) bends nothing.
fn in_force(i: &Interval) -> bool {
    i.end.is_none() && (i.nodes || (&*i.kind != "kill" && !i.workers.is_empty()))
}

/// A release of what had been released when it was asked for: it prolongs nothing.
fn released_before(cx: &Cx<'_>, op: &Op) -> bool {
    let grant = op.grant.and_then(|id| cx.track.grant(id));
    let freed = grant.and_then(|g| g.freed);
    freed.is_some_and(|f| f.index < op.invoke.index)
}

impl Check for FreedInTime {
    fn event(&mut self, cx: &Cx<'_>) {
        let now = cx.seen.now;
        match &cx.seen.what {
            What::Done(op, kind) if op.f == F::Acquire => self.answered(cx, op, *kind),
            What::Done(op, _) if op.f == F::Release && !released_before(cx, op) => {
                self.restart(op.key, now, "its holder released it");
            }
            What::Exit(Some(w)) => self.orphan(cx.track, *w, now),
            What::Fault => {
                let all = &cx.track.faults.all;
                // Once none is in force liveness is demanded again, until the next.
                self.calm = match self.over || all.iter().any(in_force) {
                    true => None,
                    false => self.calm.or(Some(now)),
                };
                let killed = |i: &&Interval| &*i.kind == "kill" && i.sure == Some(now);
                for w in all.iter().filter(killed).flat_map(|i| i.workers.clone()) {
                    self.orphan(cx.track, w, now);
                }
            }
            What::Phase(phase) => self.phase(phase, now),
            _ => {}
        }
        if let Some((id, _)) = cx.seen.lost
            && let Some(g) = cx.track.grant(id)
        {
            let key = g.key;
            self.restart(key, now, "its holder lost it");
            self.keys.entry(key).or_default().orphaned = true;
        }
    }

    fn certain(&self) -> u64 {
        self.findings.count
    }

    fn tell(&self, _: &Tracker) -> Vec<(&'static str, Finding)> {
        self.findings.told(ENTRY.name)
    }

    fn finish(mut self: Box<Self>, _: &Facts, track: &Tracker, out: &mut Results) {
        for (key, k) in std::mem::take(&mut self.keys) {
            // An acquire that never returned may have got the lock in the meantime.
            let open = |at: Stamp| {
                track
                    .open_ops()
                    .any(|o| o.key == key && o.f == F::Acquire && o.invoke.index < at.index)
            };
            if let Some((at, f)) = k.suspect
                && !open(at)
            {
                self.findings.add(f);
            }
        }
        let otherwise = match (self.leases, self.exercised) {
            (false, _) => Otherwise::Unknown("the locks have no lease".into()),
            (true, 0) => {
                Otherwise::Unknown("no holder died or lost its lock in the calm part".into())
            }
            (true, n) => Otherwise::Holds(format!(
                "{} of a dead or silent holder granted to another in time",
                plural(n, "lock")
            )),
        };
        out.insert(
            ENTRY.name.into(),
            self.findings.conclude(self.exercised, otherwise),
        );
    }
}
