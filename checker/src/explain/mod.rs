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
    /// Where the evidence does not start at the beginning of the history: the event after which it starts. No
    /// known operation was open then, so that what came before matters only by the states that it can have led to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// Those states, unknown operations having taken effect only where an answer needed it (they are part of the
    /// evidence and may still do so), without those that a read to come rules out. The evidence is illegal from each. A text that is null is any that no
    /// read to come shows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub start: Vec<serde_json::Value>,
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
    /// Stamp from which it starts, and the states there.
    pub from: Option<u64>,
    pub start: Vec<serde_json::Value>,
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
        let o = &ops[i];
        [Some(o.call), Some(o.ret).filter(|_| !o.is_optional())]
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
        // Its answer matters all the same: the object must come to give it.
        let later = last.is_some_and(|l| o.ret > l);
        let when = match (o.is_optional(), later) {
            (true, _) => ", and nobody learns the outcome".to_owned(),
            (_, true) => format!(", answered later: {}", tell.answer(&o.op)),
            _ => String::new(),
        };
        let text = format!("process {}: {}{when}", o.process, tell.call(&o.op));
        story.push(StoryStep {
            index: index(o.call),
            text,
        });
        if !o.is_optional() && !later {
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
        from: evidence.from.map(index),
        start: evidence.start.iter().map(bounded).collect(),
        cycle: evidence.cycle.iter().map(|&i| index(ops[i].call)).collect(),
        prefix: last.map(index),
    }
}

/// Characters of a state that are told at most.
const STATE: usize = 4_000;

fn bounded(state: &serde_json::Value) -> serde_json::Value {
    let text = state.to_string();
    if text.len() <= STATE {
        return state.clone();
    }
    let head: String = text.chars().take(200).collect();
    format!("{head}… ({} characters)", text.chars().count()).into()
}
