//! A violation, told so that a person can follow it and a program can check it.

pub(crate) mod cycle;
pub(crate) mod tell;
pub(crate) mod window;

use serde::Serialize;

use crate::ops::Timed;
use tell::Tell;

/// Operations told in a story at most; the evidence lists all of them up to `EVIDENCE`.
const TOLD: usize = 12;
/// Event indexes listed at most.
const EVIDENCE: usize = 400;

/// Smallest evidence that was found for a violation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// What kind of evidence: `overlapping-holds`, `inverted-pair`, `zone-cycle`, …
    pub class: &'static str,
    /// One lower-case line.
    pub summary: String,
    pub key: Option<String>,
    /// Event indexes that the evidence rests on, ascending.
    pub evidence: Vec<u64>,
    /// The evidence in words, one event a step, in order of index.
    pub story: Vec<StoryStep>,
    /// States that the history before the evidence allows, where it does not
    /// start at the beginning.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub start: Vec<String>,
    /// Where the evidence is a cycle of what must precede what: invocations of
    /// the shortest one, in its order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cycle: Vec<u64>,
    /// Event index from which nothing explains the history any more; all
    /// before it is linearizable. `None` where the evidence stands by itself.
    pub prefix: Option<u64>,
}

/// One event of a story.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoryStep {
    pub index: u64,
    pub text: String,
}

/// Evidence in terms of one key's operations.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Evidence {
    pub class: &'static str,
    pub summary: String,
    pub ops: Vec<usize>,
    pub start: Vec<String>,
    pub cycle: Vec<usize>,
    /// Stamp of the return that nothing explains.
    pub stuck: Option<u64>,
}

/// Puts evidence into words. `index` turns a stamp into an event index.
pub(crate) fn explain<O>(
    evidence: &Evidence,
    ops: &[Timed<O>],
    key: Option<&str>,
    tell: &dyn Tell<O>,
    index: &dyn Fn(u64) -> u64,
) -> Explanation {
    let mut at = evidence.ops.clone();
    at.sort_unstable();
    at.dedup();
    let stamps = at.iter().flat_map(|&i| {
        [
            Some(ops[i].call),
            Some(ops[i].ret).filter(|_| !ops[i].is_optional()),
        ]
    });
    let mut list: Vec<u64> = stamps.flatten().map(index).collect();
    list.sort_unstable();
    list.truncate(EVIDENCE);
    let last = evidence.stuck;
    let told = if at.len() <= TOLD {
        &at[..]
    } else {
        &at[at.len() - TOLD..]
    };
    let mut story = Vec::new();
    for &i in told {
        let o = &ops[i];
        let pending = o.is_optional() || last.is_some_and(|l| o.ret > l);
        let when = if o.is_optional() {
            ", and nobody learns the outcome"
        } else if pending {
            ", not answered by then"
        } else {
            ""
        };
        let text = format!("process {}: {}{when}", o.process, tell.call(&o.op));
        story.push(StoryStep {
            index: index(o.call),
            text,
        });
        if !pending {
            let text = format!(
                "process {}: {} → {}",
                o.process,
                tell.call(&o.op),
                tell.answer(&o.op)
            );
            story.push(StoryStep {
                index: index(o.ret),
                text,
            });
        }
    }
    story.sort_by_key(|s| s.index);
    Explanation {
        class: evidence.class,
        summary: evidence.summary.clone(),
        key: key.map(str::to_string),
        evidence: list,
        story,
        start: evidence.start.clone(),
        cycle: evidence.cycle.iter().map(|&i| index(ops[i].call)).collect(),
        prefix: last.map(index),
    }
}
