//! Confirms a witness: the events that an explanation cites, and nothing else of the history, are illegal.

use fencepost_checker::explain::Explanation;
use fencepost_history::Event;

use crate::oracle::{Object, Op, after, fences, legal, operations};

/// How a witness stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stands {
    /// From the object's start.
    Alone,
    /// From the states that it says came before, which are possible; and no other state before it saves it.
    AfterStates,
}

pub fn confirm<O: Object>(o: &O, events: &[Event], why: &Explanation) -> Result<Stands, String> {
    let cited = operations(events.iter().filter(|e| why.evidence.contains(&e.index)));
    let Some(from) = why.from else {
        return match legal(o, &cited, &[o.start()]) {
            true => Err("the cited events alone are legal".into()),
            false => Ok(Stands::Alone),
        };
    };
    let all = operations(events);
    let told: Vec<O::State> = why
        .start
        .iter()
        .flat_map(|s| o.told(s, &fences(&all)))
        .collect();
    if told.is_empty() || legal(o, &cited, &told) {
        return Err(format!("legal from {told:?}"));
    }
    let before = |op: &&Op| op.ret.is_some_and(|r| r <= from);
    let known: Vec<Op> = all.iter().filter(before).cloned().collect();
    let lost = all.iter().filter(|op| op.ret.is_none() && op.call < from);
    let prefix: Vec<Op> = known.iter().chain(lost).cloned().collect();
    // Null stands for any text that no read to come can show.
    let open = why.start.iter().any(serde_json::Value::is_null);
    if !open && !after(o, &prefix).iter().any(|s| told.contains(s)) {
        return Err(format!("none of {told:?} is possible"));
    }
    // With everything before it, so that no other state saves it.
    let rest = cited
        .into_iter()
        .filter(|c| prefix.iter().all(|p| p.call != c.call));
    let whole: Vec<Op> = prefix.iter().cloned().chain(rest).collect();
    match legal(o, &whole, &[o.start()]) {
        true => Err(format!("legal after other states than {told:?}")),
        false => Ok(Stands::AfterStates),
    }
}
