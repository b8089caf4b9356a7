//! One worker's lane: pauses behind, holds as bars, operations beneath them.

use super::labels::{Labels, MAIN, REST, STORY};
use super::pen::Pen;
use crate::load::events::plain;
use crate::scan::faults::Fault;
use crate::timeline::{Answer, End, Hold, Lane, Op, Who};
use crate::words::{clip, seconds, span};

const ROW: i64 = 58;
const BAR: i64 = 16;

pub fn height(lane: &Lane) -> i64 {
    ROW * (lane.rows.len().max(1) as i64) + 8
}

pub fn lane(pen: &mut Pen, lane: &Lane, faults: &[(&Fault, i64, i64)], y: i64, height: i64) {
    let grants = lane.rows.iter().map(Vec::len).sum::<usize>();
    let sub = match grants {
        1 => "1 grant".to_string(),
        n => format!("{n} grants"),
    };
    pen.strip(&lane.who.to_string(), &sub, y, height);
    if let Who::Worker(worker) = lane.who {
        let hit = faults.iter().filter(|(f, ..)| f.affects_worker(worker));
        for (fault, from, to) in hit {
            affected(pen, fault, *from, *to, y, height);
        }
    }
    let no_row = Vec::new();
    let rows = if lane.rows.is_empty() {
        std::slice::from_ref(&no_row)
    } else {
        &lane.rows[..]
    };
    for (n, holds) in rows.iter().enumerate() {
        let y = y + n as i64 * ROW;
        let mut bars = Labels::default();
        let mut ops = Labels::default();
        for h in holds {
            hold(pen, h, y, &mut bars);
            for o in &h.ops {
                op(pen, o, Some(h), y, &mut ops);
            }
        }
        if n == 0 {
            for o in &lane.loose {
                op(pen, o, None, y, &mut ops);
            }
            for mark in &lane.marks {
                pen.open(
                    mark.at.index,
                    "lane-mark",
                    &format!("{}\nat {}", clip(&mark.what, 120), seconds(mark.at.time)),
                );
                pen.glyph("mark", mark.at.time, y + 6);
                pen.close(mark.at.index);
            }
        }
        bars.draw(pen, y + 24, "in-bar");
        ops.draw(pen, y + 56, "note");
    }
}

fn affected(pen: &mut Pen, fault: &Fault, from: i64, to: i64, y: i64, height: i64) {
    let index = fault.installed.as_ref().map_or(0, |s| s.index);
    let tip = format!(
        "{}\nfrom {} to {}, {}",
        fault.name,
        seconds(from),
        seconds(to),
        span(to - from)
    );
    pen.open(index, "affected", &tip);
    let class = if fault.kind == "pause" {
        "paused"
    } else {
        "hit"
    };
    pen.bar(class, from, to, y + 2, height - 4);
    pen.close(index);
}

fn hold(pen: &mut Pen, h: &Hold, y: i64, labels: &mut Labels) {
    let fence = h
        .fence
        .map_or("no fence".to_string(), |f| format!("fence {f}"));
    let top = y + 12;
    if h.granted.time > h.asked.time {
        pen.open(
            h.asked.index,
            "wait",
            &format!(
                "asked at {}\nwaited {}",
                seconds(h.asked.time),
                span(h.granted.time - h.asked.time)
            ),
        );
        pen.line("waiting", h.asked.time, h.granted.time, top + BAR / 2);
        pen.close(h.asked.index);
    }
    let until = h.held_until().unwrap_or(pen.to).max(h.granted.time);
    pen.open(h.granted.index, "hold", &tip(h, &fence));
    pen.bar("certain", h.granted.time, until, top, BAR);
    if let (Some(promised), Some(overstay)) = (h.promised, h.overstay()) {
        pen.bar("over", promised.max(h.granted.time), overstay, top, BAR);
    }
    for renewal in &h.renewals {
        pen.at("renewal", renewal.time, top + BAR);
        pen.add(format_args!("<path d=\"M0-3V3\"/>"));
        pen.end();
    }
    pen.close(h.granted.index);
    if let Some(promised) = h.promised
        && h.end.as_ref().is_none_or(|(_, at)| at.time > promised)
        && (pen.from..=pen.to).contains(&promised)
    {
        pen.open(
            h.granted.index,
            "lease-end",
            &format!("lease of {fence} ends\nat {}", seconds(promised)),
        );
        pen.at("lease", promised, top);
        pen.add(format_args!(
            "<path d=\"M0-6V{}M0-6H7L5-3.5 7-1H0\"/>",
            BAR + 5
        ));
        pen.end();
        pen.close(h.granted.index);
    }
    let shown = h.overstay().unwrap_or(until).max(until).min(pen.to);
    if shown > pen.from {
        labels.within(h.granted.time.max(pen.from), shown, &fence);
    }
}

fn tip(h: &Hold, fence: &str) -> String {
    let mut tip = format!(
        "{} holds with {fence}\ngranted at {}",
        h.who,
        seconds(h.granted.time)
    );
    if let Some(ttl) = h.ttl {
        tip += &format!(" for {}", span(ttl));
    }
    if let Some(promised) = h.promised {
        tip += &format!("\npromised until {}", seconds(promised));
    }
    if let Some(over) = h.overstay() {
        tip += &format!("\nbelieved to hold until {}", seconds(over));
    }
    if let Some((end, at)) = &h.end {
        let word = match end {
            End::Released => "released",
            End::Lost => "loss noticed",
            End::Closed => "worker closed",
            End::Died => "worker ended",
        };
        tip += &format!("\n{word} at {}", seconds(at.time));
    }
    tip + &format!("\nowner {}", clip(&h.owner, 80))
}

fn op(pen: &mut Pen, op: &Op, hold: Option<&Hold>, y: i64, labels: &mut Labels) {
    let late = hold
        .and_then(|h| h.promised)
        .is_some_and(|promised| op.answered.map_or(op.invoked.time, |a| a.time) > promised);
    if &*op.f == "acquire" {
        return tried(pen, op, y);
    }
    let read = &*op.f == "read";
    let (class, answer) = match &op.answer {
        Answer::Accepted if read => ("seen", "answered".to_string()),
        Answer::Accepted => ("accepted", "accepted".to_string()),
        Answer::Refused(error) => ("refused", format!("refused: {}", clip(error, 80))),
        Answer::Unknown => ("unknown", "outcome unknown".to_string()),
    };
    let index = op.answered.map_or(op.invoked.index, |a| a.index);
    let fence = op
        .fence
        .map_or("no fence".to_string(), |f| format!("fence {f}"));
    let mut tip = format!(
        "{} with {fence}: {answer}\nsent at {}",
        op.f,
        seconds(op.invoked.time)
    );
    match op.answered {
        Some(at) => tip += &format!("\nanswered at {}", seconds(at.time)),
        None => tip += "\nnever answered",
    }
    if late {
        tip += "\nanswered after the end of its lease";
    }
    if !read {
        tip += &format!("\nvalue {}", clip(&plain(&op.value), 80));
    }
    let told = pen.in_story(op.invoked.index) || pen.in_story(index);
    let end = op.answered.map_or(pen.to, |a| a.time);
    let line = y + 40;
    pen.open(index, if told { "op told" } else { "op" }, &tip);
    pen.line(
        if op.answered.is_some() {
            "in-flight"
        } else {
            "in-flight open"
        },
        op.invoked.time,
        end,
        line,
    );
    pen.glyph(class, end, line);
    pen.close(index);
    let mark = match class {
        "refused" => " ✗",
        "unknown" => " ?",
        _ => "",
    };
    let late = if late && !read { ", late" } else { "" };
    let text = format!(
        "{} {}{late}{mark}",
        op.f,
        op.fence.map_or(String::new(), |f| f.to_string())
    );
    let rank = match told || class == "refused" {
        true => STORY,
        false if !read => MAIN,
        false => REST,
    };
    labels.add(end, -6, &text, rank);
}

/// An acquire that got nothing.
fn tried(pen: &mut Pen, op: &Op, y: i64) {
    let (class, answer) = match &op.answer {
        Answer::Refused(error) => ("tried", error.as_str()),
        _ => ("unknown", "outcome unknown"),
    };
    let end = op.answered.map_or(pen.to, |a| a.time);
    let tip = format!(
        "asked for the lock at {}\n{answer} at {}",
        seconds(op.invoked.time),
        seconds(end)
    );
    let index = op.answered.map_or(op.invoked.index, |a| a.index);
    pen.open(index, "wait", &tip);
    pen.line("waiting", op.invoked.time, end, y + 20);
    pen.glyph(class, end, y + 20);
    pen.close(index);
}
