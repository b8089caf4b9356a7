//! What makes the other checks' answers worth something: the planned faults took hold, there were
//! enough grants, and (said, not demanded) a lock went from a live holder to another.

use super::double_holder::turnover;
use super::finding::{plural, result};
use super::track::{Faults, Tracker, What};
use super::{Check, Cx, Entry, Results};
use crate::judge::facts::Facts;
use crate::verdict::Verdict;

pub const ENTRY: Entry = Entry {
    name: "coverage",
    about: "faults applied, enough grants, takeovers: what makes other answers worth something",
    new: |_| Box::new(Coverage::default()),
    live: None,
};

#[derive(Default)]
struct Coverage {
    grants: u64,
    takeovers: u64,
    faulted: bool,
    /// Grants since the first fault began.
    since: u64,
}

/// How many faults took hold, and the first that did not, in words.
pub fn applied(faults: &Faults, planned: u64) -> (u64, Option<String>) {
    let sure = faults.all.iter().filter(|i| i.sure.is_some()).count() as u64;
    if planned > 0 && sure >= planned {
        return (sure, None);
    }
    let missed = faults.all.iter().find(|i| i.sure.is_none()).map(|i| {
        let how = match (i.skipped, i.indeterminate) {
            (true, _) => "was skipped",
            (_, true) => "may not have taken hold",
            _ => "has no result",
        };
        let why = i
            .reason
            .as_deref()
            .map(|r| format!(": {r}"))
            .unwrap_or_default();
        format!("fault {} ({}) {how}{why}", i.id, i.fault)
    });
    let missed = missed.or_else(|| {
        (sure < planned)
            .then(|| format!("{sure} of {} took hold", plural(planned, "planned fault")))
    });
    (sure, missed)
}

impl Check for Coverage {
    fn event(&mut self, cx: &Cx<'_>) {
        if let Some(b) = cx.seen.granted.and_then(|id| cx.track.grant(id)) {
            self.grants += 1;
            self.since += u64::from(self.faulted);
            self.takeovers += u64::from(turnover(cx.track, b).1);
        }
        self.faulted |= matches!(cx.seen.what, What::Fault);
    }

    fn finish(self: Box<Self>, facts: &Facts, track: &Tracker, out: &mut Results) {
        let (sure, missed) = applied(&track.faults, facts.faults_planned);
        let counts = format!(
            "{}, {} from a live holder, {} applied",
            plural(self.grants, "grant"),
            plural(self.takeovers, "takeover"),
            plural(sure, "fault")
        );
        let few = self.grants < facts.allow.min_grants;
        let (verdict, reason) = match missed {
            Some(missed) => (Verdict::Unknown, format!("{missed}; {counts}")),
            None if self.faulted && self.since == 0 => (
                Verdict::Unknown,
                format!("no grant since the first fault: {counts}"),
            ),
            None if few => {
                let wanted = facts.allow.min_grants;
                (
                    Verdict::Unknown,
                    format!("too few grants, {wanted} wanted: {counts}"),
                )
            }
            None => (Verdict::Holds, counts),
        };
        out.insert(ENTRY.name.into(), result(verdict, reason, self.grants));
    }
}
