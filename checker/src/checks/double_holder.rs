//! More clients hold, claim or act under conflicting grants at once than the mode allows
//! (exclusive 1, semaphore N, shared with shared never; one owner's re-entrant grants are one).
//!
//! - `service`: both within their promised ends. The service is broken.
//! - `client`: one is past its promised end, yet its worker claims or uses it, though nothing paused
//!   it, bent its clock or hid the loss.
//! - `limit`: the same, but a fault held its worker across the promised end. No lease can prevent it.

use hashbrown::HashSet;

use super::crossing::{Crossing, Crossings};
use super::finding::{Findings, holds_if, plural};
use super::track::{Belief, Grant, GrantId, How, Interval, Mode, Stamp, Tracker, What};
use super::{Check, Cx, Entry, Finding, Results, StoreOp};
use crate::judge::facts::Facts;
use crate::verdict::{CheckResult, Verdict};

pub const ENTRY: Entry = Entry {
    name: "double-holder",
    about: "two clients hold, claim or act under one lock at once; classes service, client, limit",
    new: |facts| Box::new(DoubleHolder::new(facts)),
    // The log is gone through again at the end only.
    live: Some(|facts| {
        Box::new(DoubleHolder {
            crossings: None,
            ..DoubleHolder::new(facts)
        })
    }),
};

const SERVICE: &str = "double-holder.service";
const CLIENT: &str = "double-holder.client";
const LIMIT: &str = "double-holder.limit";

/// Certain unless a loss that was noticed earlier is reported later.
struct Pending {
    holders: Vec<GrantId>,
    /// Those whose workers have not shown since that they believed still.
    unsure: Vec<GrantId>,
    at: Stamp,
    finding: Finding,
}

/// Findings that may still be taken back, at most.
const PENDING: usize = 256;
/// Pairs that were told already, above which forgotten grants are looked for among them.
const TOLD: usize = 1 << 14;

struct DoubleHolder {
    permits: u64,
    pending: Vec<Pending>,
    service: Findings,
    client: Findings,
    limit: Findings,
    crossings: Option<Crossings>,
    told: HashSet<(GrantId, GrantId)>,
    handovers: u64,
    takeovers: u64,
}

impl DoubleHolder {
    fn new(facts: &Facts) -> Self {
        DoubleHolder {
            permits: facts.permits.unwrap_or(1).max(1),
            pending: Vec::new(),
            service: Findings::default(),
            client: Findings::default(),
            limit: Findings::default(),
            crossings: Some(Crossings::default()),
            told: HashSet::new(),
            handovers: 0,
            takeovers: 0,
        }
    }

    /// A grant is certain from now on: does it fit beside those that are?
    fn begins(&mut self, cx: &Cx<'_>, b: &Grant) {
        let now = cx.seen.now;
        if !b.certain_at(now) {
            return;
        }
        if b.mode == Mode::Semaphore {
            let holders: Vec<&Grant> = certain(cx.track, b, now).collect();
            if holders.len() as u64 >= self.permits {
                let text = format!(
                    "{} is held {} times at once, {} allowed",
                    b.name,
                    holders.len() + 1,
                    self.permits
                );
                self.suspect(b, &holders, now, text);
            }
            return;
        }
        for a in cx.track.live_of(b.key) {
            if a.id != b.id && a.conflicts(b) && a.certain_at(now) {
                let text = format!(
                    "{} holds {}{} and {} is granted it too{}, both within their promised ends",
                    a.who(),
                    a.name,
                    a.fence_words(),
                    b.who(),
                    b.fence_words()
                );
                self.suspect(b, &[a], now, text);
            }
        }
    }

    fn suspect(&mut self, b: &Grant, others: &[&Grant], at: Stamp, reason: String) {
        let mut finding = Finding::new(reason);
        for g in others {
            finding = finding.granted(g);
            if let Some(p) = g.promised {
                let words = format!("{} may hold {} until here at least", g.who(), g.name);
                finding = finding.follow(g.ok, p, words);
            }
        }
        finding = finding.granted(b);
        if self.pending.len() >= PENDING {
            let sure = self.pending.remove(0);
            self.service.add(sure.finding);
        }
        let holders: Vec<GrantId> = others.iter().map(|g| g.id).chain([b.id]).collect();
        self.pending.push(Pending {
            unsure: holders.clone(),
            holders,
            at,
            finding,
        });
    }

    /// Takes back what a loss, noticed before the moment in question, explains.
    fn recheck(&mut self, track: &Tracker) {
        self.pending.retain(|p| {
            p.holders.iter().all(|id| {
                let until = track.grant(*id).and_then(|g| g.until);
                until.is_none_or(|u| u.index > p.at.index)
            })
        });
    }

    /// Belief from then on: no loss can have been noticed before.
    fn confirm(&mut self, belief: Belief) {
        if self.pending.is_empty() {
            return;
        }
        for p in &mut self.pending {
            if belief.at.index >= p.at.index {
                p.unsure.retain(|id| *id != belief.grant);
            }
        }
        let (sure, rest) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|p| p.unsure.is_empty());
        self.pending = rest;
        for p in sure {
            self.service.add(p.finding);
        }
    }

    /// The worker of `a` believed in it at `b.at`: who else surely held then?
    fn believed(&mut self, cx: &Cx<'_>, belief: Belief) {
        let Some(a) = cx.track.grant(belief.grant) else {
            return;
        };
        if !a.over_at(belief.at) {
            return;
        }
        let proof = Proof {
            how: belief.how,
            act: cx.seen.now,
            from: match &cx.seen.what {
                What::Done(op, _) => Some(op.invoke),
                _ => None,
            },
        };
        if a.mode == Mode::Semaphore {
            let others: Vec<&Grant> = cx
                .track
                .grants_of(a.key)
                .filter(|b| b.id != a.id && b.certain_at(belief.at))
                .collect();
            if others.len() as u64 >= self.permits {
                self.overheld(cx.track, a, &others, &proof);
            }
            return;
        }
        let rivals: Vec<&Grant> = cx
            .track
            .grants_of(a.key)
            .filter(|b| overlap(a, b, belief.at))
            .collect();
        for b in rivals {
            self.overheld(cx.track, a, &[b], &proof);
        }
    }

    fn overheld(&mut self, track: &Tracker, a: &Grant, others: &[&Grant], proof: &Proof) {
        // A loss that was noticed late counts from the last request read before it, which may lie before
        // the fault: what counts as well is the promised end.
        let faults = &track.faults;
        let fault = faults
            .across(a.worker, a.end_time())
            .or_else(|| faults.across(a.worker, a.promised?));
        // To notice a loss late is neither a claim nor a use.
        if fault.is_none() && proof.how == How::Noticed {
            return;
        }
        let first = others.first().map_or(a.id, |g| g.id);
        if !self.told.insert((a.id, first)) {
            return;
        }
        if self.told.len() > TOLD {
            // Only remembered grants are believed in.
            self.told
                .retain(|(a, b)| track.grant(*a).is_some() && track.grant(*b).is_some());
        }
        let finding = story(a, others, fault, proof);
        match fault {
            Some(_) => self.limit.add(finding),
            None => self.client.add(finding),
        }
    }
}

/// What showed that a worker still believed.
struct Proof {
    how: How,
    act: Stamp,
    from: Option<Stamp>,
}

fn certain<'a>(
    track: &'a Tracker,
    b: &'a Grant,
    now: Stamp,
) -> impl Iterator<Item = &'a Grant> + 'a {
    track
        .live_of(b.key)
        .filter(move |a| a.id != b.id && a.mode == Mode::Semaphore && a.certain_at(now))
}

/// `b` was surely held at some moment after `a` was over, up to `x`, and the two were never both
/// certain (that is the service's class).
///
/// `b` may have waited for long, and its own promised end counts from when it asked. But it was granted
/// after the lease of `a` had run out, or else the service granted it within the lease of `a`: two held at
/// once in either case, and in the first the lease of `b` lasts from the promised end of `a` at least.
fn overlap(a: &Grant, b: &Grant, x: Stamp) -> bool {
    if b.id == a.id || !b.conflicts(a) || b.ok.index > x.index {
        return false;
    }
    let after_a = a
        .promised
        .zip(b.ttl.filter(|_| b.later_than(a)))
        .map(|(p, ttl)| p + ttl - ttl / 50);
    let lease = b.promised.map(|p| p.max(after_a.unwrap_or(p)));
    let over = |s: Stamp| {
        b.until.is_some_and(|u| u.index <= s.index) || lease.is_some_and(|p| p <= s.time)
    };
    let end = lease
        .unwrap_or(i64::MAX)
        .min(b.until.map_or(i64::MAX, |u| u.time));
    let together = !over(b.ok) && !over(a.ok) && end > a.end_time();
    together && !a.certain_at(b.ok) && !b.certain_at(a.ok)
}

fn story(a: &Grant, others: &[&Grant], fault: Option<&Interval>, proof: &Proof) -> Finding {
    let why = match fault {
        Some(f) => format!("{} held it across its promised end", f.fault),
        None => "though nothing held it up".to_owned(),
    };
    let verb = match proof.how {
        How::Claimed => "claims",
        How::Acted => "acts under",
        How::Noticed => "believes in",
    };
    let holders = others
        .iter()
        .map(|b| b.who())
        .collect::<Vec<_>>()
        .join(", ");
    let mut f = Finding::new(format!(
        "{} {verb} {}{} after its promised end while {holders} holds it; {why}",
        a.who(),
        a.name,
        a.fence_words()
    ))
    .granted(a);
    f = f.ran_out(a, fault);
    for b in others {
        f = f.granted(b);
    }
    if let Some(from) = proof.from {
        f = f.cite(from);
    }
    f.tell(proof.act, format!("{} {verb} {} still", a.who(), a.name))
}

impl Check for DoubleHolder {
    fn event(&mut self, cx: &Cx<'_>) {
        if let Some(crossings) = &mut self.crossings {
            crossings.event(cx);
        }
        if let Some(b) = cx.seen.granted.and_then(|id| cx.track.grant(id)) {
            let (handed, taken) = turnover(cx.track, b);
            self.handovers += u64::from(handed);
            self.takeovers += u64::from(taken);
            self.begins(cx, b);
        }
        if let Some((id, _, true)) = cx.seen.renewed
            && let Some(b) = cx.track.grant(id)
        {
            self.begins(cx, b);
        }
        for belief in &cx.seen.beliefs {
            self.confirm(*belief);
            self.believed(cx, *belief);
        }
        if !self.pending.is_empty()
            && (cx.seen.lost.is_some() || matches!(cx.seen.what, What::Exit(_)))
        {
            self.recheck(cx.track);
        }
    }

    fn store_again(&mut self, track: &Tracker, op: &StoreOp) {
        let crossing = self.crossings.as_mut().and_then(|c| c.store(track, op));
        let Some(Crossing { a, b, op, done }) = crossing else {
            return;
        };
        if !overlap(&a, &b, b.ok) {
            return;
        }
        let proof = Proof {
            how: How::Acted,
            act: done.unwrap_or(op),
            from: Some(op),
        };
        self.overheld(track, &a, &[&b], &proof);
    }

    fn certain(&self) -> u64 {
        // What is pending may still be taken back.
        self.service.count + self.client.count + self.limit.count
    }

    fn tell(&self, _: &Tracker) -> Vec<(&'static str, Finding)> {
        [
            (SERVICE, &self.service),
            (CLIENT, &self.client),
            (LIMIT, &self.limit),
        ]
        .into_iter()
        .flat_map(|(name, findings)| findings.told(name))
        .collect()
    }

    fn finish(mut self: Box<Self>, _: &Facts, _: &Tracker, out: &mut Results) {
        for p in std::mem::take(&mut self.pending) {
            self.service.add(p.finding);
        }
        let why = format!("{}, never two at once", plural(self.handovers, "hand-over"));
        let none = "the lock never went from one client to another";
        let service = self
            .service
            .conclude(self.handovers, holds_if(self.handovers, why, none));
        let why = plural(self.takeovers, "lease") + " ran out under a holder, none was used beyond";
        let none = "no lease ran out under its holder before another was granted";
        let rest =
            |f: Findings| f.conclude(self.takeovers, holds_if(self.takeovers, why.clone(), none));
        let (client, limit) = (rest(self.client), rest(self.limit));
        out.insert(ENTRY.name.into(), overall(&[&service, &client, &limit]));
        out.insert(SERVICE.into(), service);
        out.insert(CLIENT.into(), client);
        out.insert(LIMIT.into(), limit);
    }
}

/// Violated if any class is; else what the service's class says.
fn overall(classes: &[&CheckResult; 3]) -> CheckResult {
    let worst = classes.iter().find(|c| c.verdict == Verdict::Violated);
    let mut all = (*worst.unwrap_or(&classes[0])).clone();
    all.count = classes.iter().map(|c| c.count).sum();
    all
}

/// Whether this grant followed another owner's, and whether that one's lease ran out under it.
pub fn turnover(track: &Tracker, b: &Grant) -> (bool, bool) {
    let mut handed = false;
    for a in track.recent_of(b.key, 2) {
        if a.id == b.id || a.same_owner(b) {
            continue;
        }
        handed = true;
        let ran_out = a
            .release
            .is_none_or(|r| a.promised.is_some_and(|p| r.time > p));
        if ran_out && a.over_at(b.ok) && a.conflicts(b) {
            return (true, true);
        }
    }
    (handed, false)
}
