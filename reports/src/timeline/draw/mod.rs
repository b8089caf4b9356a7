//! Draws a timeline as SVG.
//!
//! Every element that has a time carries it as a fraction of the window
//! (`data-a`, `data-b`), from which the page's script lays it out anew when the
//! reader zooms; without the script the picture stands as drawn here. Colours
//! and patterns come from the page's style sheet, by class.

mod labels;
mod lane;
mod pen;

use std::collections::BTreeSet;

use self::labels::Labels;
use self::pen::{GUTTER, Pen, WIDTH};
use super::{Focus, StoreMark, Timeline, in_window};
use crate::scan::faults::Fault;
use crate::words::{clip, seconds, span, targets};

const AXIS: i64 = 26;
const BADGES: i64 = 22;
const STRIP: i64 = 44;
const MAX_FAULTS: usize = 60;

/// The picture, and what had to be left out of it.
pub struct Drawing {
    pub svg: String,
    pub cut: Vec<String>,
}

/// Draws `timeline`; `linked` says whether an event is shown on the page.
pub fn draw(
    timeline: &Timeline,
    focus: &Focus,
    faults: &[Fault],
    linked: &dyn Fn(u64) -> bool,
) -> Drawing {
    let story: BTreeSet<u64> = focus.steps.iter().map(|(index, _)| *index).collect();
    let mut pen = Pen::new(focus.from, focus.to, linked, story);
    let mut cut = Vec::new();
    let badges = badge_levels(&pen, focus);
    let rows = badges.iter().map(|(_, level)| level + 1).max().unwrap_or(0);
    let top = AXIS + rows * BADGES + 4;
    let mut y = top;
    pen.strip("", "", 0, top);
    let mut nemesis = in_window(faults, focus);
    if nemesis.len() > MAX_FAULTS {
        cut.push(format!(
            "{MAX_FAULTS} of {} faults in this window are drawn.",
            nemesis.len()
        ));
        nemesis.truncate(MAX_FAULTS);
    }
    if !nemesis.is_empty() {
        faults_strip(&mut pen, &nemesis, y);
        y += STRIP;
    }
    for lane in &timeline.lanes {
        let height = lane::height(lane);
        lane::lane(&mut pen, lane, &nemesis, y, height);
        y += height;
    }
    if !timeline.store.is_empty() {
        store_strip(&mut pen, timeline, y);
        y += STRIP + 6;
    }
    axis(&mut pen, y);
    steps(&mut pen, focus, &badges, y);
    let height = y + 6;
    let svg = format!(
        "<svg class=\"tl\" viewBox=\"0 0 {WIDTH} {height}\" data-width=\"{WIDTH}\" data-gutter=\"{GUTTER}\" \
         data-from=\"{}\" data-to=\"{}\" role=\"img\" aria-labelledby=\"tl-title tl-desc\">\
         <title id=\"tl-title\">Timeline of lock {}</title><desc id=\"tl-desc\">{}</desc>{}{}</svg>",
        focus.from,
        focus.to,
        pen::esc(&clip(focus.key.as_deref().unwrap_or("without a name"), 120)),
        pen::esc(&describe(timeline, focus)),
        PATTERNS,
        pen.out,
    );
    Drawing { svg, cut }
}

const PATTERNS: &str = "<defs>\
    <pattern id=\"hatch-pause\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
    <line class=\"hatch-pause\" x1=\"0\" y1=\"0\" x2=\"0\" y2=\"7\"/></pattern>\
    <pattern id=\"hatch-over\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(-45)\">\
    <rect class=\"hatch-over-back\" width=\"6\" height=\"6\"/><line class=\"hatch-over\" x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\"/></pattern>\
    </defs>";

/// One sentence per lane, for readers who do not see the picture.
fn describe(timeline: &Timeline, focus: &Focus) -> String {
    let mut out = format!("From {} to {}.", seconds(focus.from), seconds(focus.to));
    for lane in &timeline.lanes {
        for hold in lane.rows.iter().flatten().take(8) {
            let fence = hold
                .fence
                .map_or("without fence".to_string(), |f| format!("with fence {f}"));
            out += &format!(
                " {} holds the lock {fence} from {}",
                lane.who,
                seconds(hold.granted.time)
            );
            if let Some(until) = hold.held_until() {
                out += &format!(" until {}", seconds(until));
            }
            if let Some(until) = hold.overstay() {
                out += &format!(", and believes so until {}", seconds(until));
            }
            out += ".";
        }
    }
    out
}

fn faults_strip(pen: &mut Pen, faults: &[(&Fault, i64, i64)], y: i64) {
    pen.strip("nemesis", "", y, STRIP);
    let mut labels = Labels::default();
    for (fault, from, to) in faults {
        let index = fault.installed.as_ref().map_or(0, |s| s.index);
        let whom = if fault.affects.is_empty() {
            &fault.targets
        } else {
            &fault.affects
        };
        let whom = targets(whom);
        let unsure = if fault.applied() { "" } else { " (not proved)" };
        let tip = format!(
            "{} of {whom}{unsure}\nfrom {} to {}, {}",
            fault.name,
            seconds(*from),
            seconds(*to),
            span(to - from)
        );
        pen.open(index, "fault", &tip);
        pen.bar("fault-bar", *from, *to, y + 8, 14);
        pen.close(index);
        let text = clip(&format!("{} of {whom}{unsure}", fault.name), 48);
        labels.add(*from, 0, &text, labels::STORY);
    }
    labels.draw(pen, y + 36, "note");
}

fn store_strip(pen: &mut Pen, timeline: &Timeline, y: i64) {
    let sub = if timeline.store_log {
        "its own log"
    } else {
        "as answered"
    };
    pen.strip("store", sub, y, STRIP + 6);
    pen.rule(y + 17);
    let mut labels = Labels::default();
    for mark in &timeline.store {
        let fence = mark.fence.map_or("no fence".to_string(), |f| f.to_string());
        pen.open(mark.index, "store-mark", &store_tip(mark, &fence));
        let class = match (mark.accepted, mark.stale(), mark.op == "read") {
            (true, true, _) => "stale",
            (true, false, false) => "accepted",
            (true, false, true) => "seen",
            (false, ..) => "refused",
        };
        pen.glyph(class, mark.time, y + 17);
        pen.close(mark.index);
        let rank = match mark.stale() || !mark.accepted {
            true => labels::STORY,
            false if mark.op != "read" => labels::MAIN,
            false => labels::REST,
        };
        let text = match (mark.stale(), mark.highest) {
            (true, Some(highest)) => format!("{fence} after {highest}!"),
            _ if !mark.accepted => format!("{fence} refused"),
            _ if mark.op == "read" => format!("read {fence}"),
            _ => fence,
        };
        labels.add(mark.time, -4, &text, rank);
    }
    labels.draw(pen, y + 40, "note");
}

fn store_tip(mark: &StoreMark, fence: &str) -> String {
    let answer = if mark.accepted { "accepted" } else { "refused" };
    let mut tip = format!(
        "{} with fence {fence}: {answer}\nnumber {} in the store's order",
        mark.op, mark.seq
    );
    if let Some(highest) = mark.highest {
        tip += &format!("\nhighest fence accepted: {highest}");
    }
    if mark.stale() {
        tip += "\na lower fence after a higher one";
    }
    tip
}

/// Which row each numbered step stands in, so that none hides another.
fn badge_levels(pen: &Pen, focus: &Focus) -> Vec<(usize, i64)> {
    let mut ends: Vec<f64> = Vec::new();
    let mut order: Vec<usize> = (0..focus.steps.len()).collect();
    order.sort_by_key(|n| focus.steps[*n].1);
    let mut levels = Vec::new();
    for n in order {
        let x = pen.x(focus.steps[n].1);
        let level = ends.iter().position(|end| *end + 20.0 < x);
        let level = level.unwrap_or(ends.len());
        if level == ends.len() {
            ends.push(x);
        } else {
            ends[level] = x;
        }
        levels.push((n, level as i64));
    }
    levels
}

fn steps(pen: &mut Pen, focus: &Focus, levels: &[(usize, i64)], bottom: i64) {
    for (n, level) in levels {
        let (index, time) = focus.steps[*n];
        let y = AXIS + level * BADGES + BADGES / 2;
        pen.guide(time, y + 9, bottom, *n + 1);
        pen.badge(index, time, y, *n + 1);
    }
}

fn axis(pen: &mut Pen, bottom: i64) {
    let step = tick_step(pen.to - pen.from);
    let mut at = pen.from.div_euclid(step) * step + step;
    while at < pen.to {
        if at >= pen.from {
            pen.tick(at, AXIS - 8, bottom, &tick_text(at, step));
        }
        at += step;
    }
}

/// Distance of ticks: 1, 2 or 5 times a power of ten, so that there are at most twelve.
pub fn tick_step(length: i64) -> i64 {
    let mut power = 1_000_i64;
    loop {
        for factor in [1, 2, 5] {
            let step = power.saturating_mul(factor);
            if length / step <= 12 {
                return step;
            }
        }
        power = power.saturating_mul(10);
    }
}

fn tick_text(at: i64, step: i64) -> String {
    let s = at as f64 / 1e9;
    match step {
        1_000_000_000.. => format!("{s:.0} s"),
        100_000_000.. => format!("{s:.1} s"),
        10_000_000.. => format!("{s:.2} s"),
        _ => format!("{s:.3} s"),
    }
}
