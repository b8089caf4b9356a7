//! Sorts what was built into lanes and rows, within bounds.

use std::collections::{BTreeMap, BTreeSet};

use super::build::Built;
use super::{Focus, Hold, Lane, Op, Timeline, Who};

/// What one picture can hold and a reader can take in.
pub const MAX_LANES: usize = 10;
pub const MAX_ROWS: usize = 4;
pub const MAX_HOLDS: usize = 160;
pub const MAX_OPS: usize = 500;

/// Lanes for the workers that matter most: those of the story first, then
/// those with the most holds; shown in the order of their numbers.
pub fn arrange(built: Built, focus: &Focus) -> Timeline {
    let mut timeline = Timeline::default();
    let story: BTreeSet<u64> = focus.steps.iter().map(|(index, _)| *index).collect();
    let holds = nearest(built.holds, focus, &story, &mut timeline.cut);
    let mut lanes: BTreeMap<Who, (Vec<Hold>, Vec<Op>)> = BTreeMap::new();
    for hold in holds {
        lanes.entry(hold.who).or_default().0.push(hold);
    }
    for (who, op) in built.loose {
        lanes.entry(who).or_default().1.push(op);
    }
    let mut ranked: Vec<Who> = lanes.keys().copied().collect();
    ranked.sort_by_key(|who| {
        let (holds, loose) = &lanes[who];
        let told = holds.iter().any(|h| in_story(h, &story));
        (!told, usize::MAX - holds.len() - loose.len(), *who)
    });
    if ranked.len() > MAX_LANES {
        let more = ranked.len() - MAX_LANES;
        timeline.cut.push(format!(
            "{more} more workers used this lock in this window."
        ));
        ranked.truncate(MAX_LANES);
    }
    ranked.sort();
    let mut marks = built.marks;
    for who in ranked {
        let Some((holds, loose)) = lanes.remove(&who) else {
            continue;
        };
        let rows = rows(holds, &mut timeline.cut, who);
        let own = marks.extract_if(.., |(w, _)| *w == who).map(|(_, m)| m);
        let marks = own.collect();
        timeline.lanes.push(Lane {
            who,
            rows,
            loose,
            marks,
        });
    }
    thin(&mut timeline, &story);
    if built.dropped > 0 {
        let n = built.dropped;
        timeline
            .cut
            .push(format!("{n} more holds and operations were not kept."));
    }
    timeline
}

fn in_story(hold: &Hold, story: &BTreeSet<u64>) -> bool {
    let ops = hold
        .ops
        .iter()
        .flat_map(|op| [Some(op.invoked.index), op.answered.map(|a| a.index)]);
    let own = [Some(hold.asked.index), Some(hold.granted.index)];
    own.into_iter()
        .chain(ops)
        .flatten()
        .any(|i| story.contains(&i))
}

/// Of too many holds, those of the story and those nearest to it.
fn nearest(
    mut holds: Vec<Hold>,
    focus: &Focus,
    story: &BTreeSet<u64>,
    cut: &mut Vec<String>,
) -> Vec<Hold> {
    if holds.len() <= MAX_HOLDS {
        return holds;
    }
    let times = focus.steps.iter().map(|(_, t)| *t);
    let middle = match (times.clone().min(), times.max()) {
        (Some(a), Some(b)) => a / 2 + b / 2,
        _ => focus.from / 2 + focus.to / 2,
    };
    holds.sort_by_key(|h| (!in_story(h, story), h.granted.time.abs_diff(middle)));
    cut.push(format!(
        "{} of {} holds of this lock in this window are shown: those of the story and those nearest to it.",
        MAX_HOLDS,
        holds.len()
    ));
    holds.truncate(MAX_HOLDS);
    holds.sort_by_key(|h| h.granted);
    holds
}

/// Puts each hold into the first row in which it overlaps nothing.
fn rows(holds: Vec<Hold>, cut: &mut Vec<String>, who: Who) -> Vec<Vec<Hold>> {
    let mut rows: Vec<Vec<Hold>> = Vec::new();
    let mut crowded = 0;
    for hold in holds {
        let fits = |row: &Vec<Hold>| row.last().is_none_or(|h| h.last() <= hold.asked.time);
        match rows.iter().position(fits) {
            Some(at) => rows[at].push(hold),
            None if rows.len() < MAX_ROWS => rows.push(vec![hold]),
            None => crowded += 1,
        }
    }
    if crowded > 0 {
        cut.push(format!("{who} had {crowded} more holds at the same time."));
    }
    rows
}

/// Drops reads first, then the operations outside the story, until they fit.
fn thin(timeline: &mut Timeline, story: &BTreeSet<u64>) {
    let total: usize = timeline.ops().count();
    if total <= MAX_OPS {
        return;
    }
    let writes = timeline.ops().filter(|op| &*op.f != "read").count();
    let keep_writes = writes <= MAX_OPS;
    let mut left = MAX_OPS;
    let mut keep = |op: &Op| {
        let told = story.contains(&op.invoked.index)
            || op.answered.is_some_and(|a| story.contains(&a.index));
        let keep = told || (keep_writes && &*op.f != "read") || (!keep_writes && left > 0);
        left = left.saturating_sub(usize::from(keep));
        keep
    };
    for lane in &mut timeline.lanes {
        lane.loose.retain(&mut keep);
        for hold in lane.rows.iter_mut().flatten() {
            hold.ops.retain(&mut keep);
        }
    }
    let shown = timeline.ops().count();
    timeline
        .cut
        .push(format!("{shown} of {total} operations are drawn."));
}

impl Timeline {
    /// Every operation that is drawn.
    pub fn ops(&self) -> impl Iterator<Item = &Op> {
        self.lanes.iter().flat_map(|lane| {
            let held = lane.rows.iter().flatten().flat_map(|h| h.ops.iter());
            held.chain(lane.loose.iter())
        })
    }
}
