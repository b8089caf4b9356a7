//! Chooses the lock and the stretch of time that the report shows in detail.

use std::collections::BTreeMap;
use std::sync::Arc;

use fencepost_history::{Event, Process, Value};

use crate::load::Run;
use crate::load::tale::Tale;
use crate::timeline::Focus;
use crate::words::list;

/// Longest stretch that one picture shows.
const MAX_SPAN: i64 = 120_000_000_000;
const MIN_PAD: i64 = 50_000_000;

/// The lock around the worst violation; without one, a lock that the first fault
/// hit, or else the busiest one, around that fault; without faults, at the
/// beginning of the load.
pub fn choose(run: &Run) -> Option<Focus> {
    let told = run.tale.as_ref();
    told.and_then(|tale| around(tale, run))
        .or_else(|| quiet(run))
}

fn around(tale: &Tale, run: &Run) -> Option<Focus> {
    let steps: Vec<(u64, i64)> = tale.steps.iter().map(|s| (s.index, s.time)).collect();
    let pointed = tale.evidence.iter().chain(steps.iter().map(|(i, _)| i));
    let mut keys: BTreeMap<Option<Arc<str>>, u32> = BTreeMap::new();
    for shown in pointed.filter_map(|i| run.scan.shown.get(i)) {
        if let Some(key) = key_of(shown) {
            *keys.entry(key).or_default() += 1;
        }
    }
    let (key, _) = keys.into_iter().max_by_key(|(_, n)| *n)?;
    let from = steps.iter().map(|(_, t)| *t).min()?;
    let to = steps.iter().map(|(_, t)| *t).max()?.min(from + MAX_SPAN);
    let pad = ((to - from) / 12).max(MIN_PAD);
    let names: Vec<&str> = tale.checks.iter().map(String::as_str).collect();
    let why = format!("Around the evidence of {}.", list(&names));
    Some(Focus {
        key,
        from: from - pad,
        to: to + pad,
        steps,
        why,
    })
}

fn key_of(event: &Event) -> Option<Option<Arc<str>>> {
    match (&event.process, &event.key) {
        (_, Some(key)) => Some(Some(key.clone())),
        (Process::Client(_), None) => Some(None),
        (Process::Named(_), None) => event
            .value
            .get("key")
            .and_then(Value::as_str)
            .map(|k| Some(k.into())),
    }
}

fn quiet(run: &Run) -> Option<Focus> {
    let locks = run.scan.locks.iter();
    let busiest = locks.max_by_key(|(key, n)| (**n, std::cmp::Reverse((*key).clone())));
    let (key, which) = match &run.scan.hit {
        Some(key) => (key.clone(), "A lock that the fault hit"),
        None => (busiest?.0.clone(), "The busiest lock"),
    };
    let ttl = run
        .meta
        .number("lease.ttl_ms")
        .map_or(1_000_000_000, |ms| (ms * 1e6) as i64);
    let ttl = ttl.clamp(100_000_000, 10_000_000_000);
    let (load, _) = run.scan.load_span();
    let fault = run.scan.faults.all.iter().find_map(|f| f.span());
    let (from, to, what) = match fault {
        Some((from, to)) => (
            from - ttl,
            to.unwrap_or(from).min(from + 20 * ttl) + ttl,
            "around the first fault",
        ),
        None => (load, load + 3 * ttl, "at the beginning of the load"),
    };
    let judged = match &run.verdicts {
        Some(_) => "No check was violated with evidence. ",
        None => "",
    };
    let why = format!("{judged}{which} is shown, {what}.");
    let key = (!key.is_empty()).then_some(key);
    Some(Focus {
        key,
        from,
        to: to.min(from + MAX_SPAN),
        steps: Vec::new(),
        why,
    })
}
