//! The lock can be had: violated when acquires in the calm part fail, or when recovery after the heal
//! marker takes longer than the scenario allows.
//!
//! Calm is what comes before the first fault. `busy` is an answer, not a failure, and a waiter whose session
//! expired was told so.

use fencepost_history::EventType;

use super::finding::{Findings, Otherwise, plural, seconds};
use super::track::{F, Op, Stamp, Tracker, What, nanos};
use super::{Check, Cx, Entry, Finding, Results};
use crate::judge::facts::Facts;

pub const ENTRY: Entry = Entry {
    name: "available",
    about: "acquires fail in the calm part, or recovery after the heal takes too long",
    new: |_| Box::new(Available::default()),
    live: None,
};

/// Share of calm acquires that may fail, as 1 in so many; and how many may in any case, so that one
/// hiccup of the machine is no verdict.
const ONE_IN: u64 = 100;
const HICCUP: u64 = 2;

#[derive(Default)]
struct Available {
    findings: Findings,
    calm: u64,
    failed: u64,
    first_failure: Option<(Stamp, Stamp, String)>,
    faulted: bool,
    healed: Option<Stamp>,
    recovered: Option<(Stamp, Stamp)>,
    /// Last answer to an acquire that was asked for after the heal.
    last: Option<Stamp>,
    drained: bool,
}

impl Available {
    fn acquired(&mut self, cx: &Cx<'_>, op: &Op, kind: EventType) {
        let now = cx.seen.now;
        if self.drained {
            return;
        }
        if !self.faulted {
            self.calm += 1;
            if fails(kind, cx.event.error.as_deref()) {
                self.failed += 1;
                let error = cx.event.error.as_deref().unwrap_or("no answer").to_owned();
                self.first_failure.get_or_insert((op.invoke, now, error));
            }
        }
        let Some(healed) = self.healed else { return };
        if self.recovered.is_none() && kind == EventType::Ok && now.index > healed.index {
            self.recovered = Some((op.invoke, now));
        }
        if op.invoke.index > healed.index {
            self.last = Some(now);
        }
    }

    fn phase(&mut self, phase: &str, now: Stamp) {
        match phase {
            "healed" => {
                self.healed = Some(now);
                self.recovered = None;
                self.last = None;
            }
            "drain" | "final" | "end" | "interrupted" => self.drained = true,
            _ => {}
        }
    }

    fn calm_failed(&mut self) {
        if self.failed <= HICCUP || self.failed * ONE_IN <= self.calm {
            return;
        }
        if let Some((invoke, done, error)) = self.first_failure.take() {
            let f = Finding::new(format!(
                "{} of {} before any fault failed, first with: {error}",
                self.failed,
                plural(self.calm, "acquire")
            ))
            .cite(invoke)
            .tell(done, format!("an acquire fails: {error}"));
            self.findings.add(f);
        }
    }

    /// Whether there was anything to say about recovery; a finding if it took too long.
    fn slow(&mut self, allowed: i64) -> Option<String> {
        let healed = self.healed.filter(|_| self.faulted)?;
        let (late, at) = match (self.recovered, self.last) {
            (Some((_, ok)), _) => (ok.time - healed.time, ok),
            (None, Some(last)) => (last.time - healed.time, last),
            (None, None) => return None,
        };
        let so_far = if self.recovered.is_some() {
            "the first grant came"
        } else {
            "no grant came within"
        };
        if late > allowed {
            let f = Finding::new(format!(
                "{so_far} {} after the heal, {} allowed",
                seconds(late),
                seconds(allowed)
            ))
            .tell(healed, "every fault is healed")
            .tell(at, format!("{so_far} {} later", seconds(late)));
            self.findings.add(f);
        }
        let some = self.recovered.is_some();
        some.then(|| format!("; recovered {} after the heal", seconds(late)))
    }
}

fn fails(kind: EventType, error: Option<&str>) -> bool {
    match kind {
        EventType::Fail => !error.is_some_and(|e| e.starts_with("busy") || e.contains("expired")),
        EventType::Info => true,
        _ => false,
    }
}

impl Check for Available {
    fn event(&mut self, cx: &Cx<'_>) {
        match &cx.seen.what {
            What::Done(op, kind) if op.f == F::Acquire => self.acquired(cx, op, *kind),
            What::Fault => self.faulted = true,
            What::Phase(phase) => self.phase(phase, cx.seen.now),
            _ => {}
        }
    }

    fn finish(mut self: Box<Self>, facts: &Facts, _: &Tracker, out: &mut Results) {
        self.calm_failed();
        let recovery = self.slow(nanos(facts.allow.recovery_ms));
        let exercised = self.calm + u64::from(recovery.is_some());
        let otherwise = match &recovery {
            None if self.faulted => {
                Otherwise::Unknown("no acquire was answered after the heal marker".into())
            }
            None if self.calm == 0 => Otherwise::Unknown("nobody asked for a lock".into()),
            _ => Otherwise::Holds(format!(
                "{} of {} answered in the calm part{}",
                self.calm - self.failed,
                plural(self.calm, "acquire"),
                recovery.unwrap_or_default()
            )),
        };
        out.insert(
            ENTRY.name.into(),
            self.findings.conclude(exercised, otherwise),
        );
    }
}
