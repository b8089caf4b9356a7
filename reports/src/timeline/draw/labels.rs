//! Labels of one row: those that would overlap another are left out until the
//! reader zooms in. The page's script repeats this choice at each zoom.

use super::pen::{Pen, WIDTH, esc};

/// Ranks of labels: of the story, of what changes something, of the rest.
pub const STORY: u8 = 0;
pub const MAIN: u8 = 1;
pub const REST: u8 = 2;

const CHAR: f64 = 6.3;
const GAP: f64 = 5.0;

#[derive(Default)]
pub struct Labels {
    all: Vec<Label>,
}

struct Label {
    time: i64,
    shift: i64,
    text: String,
    rank: u8,
    /// End of the bar that it must fit into.
    room: Option<i64>,
}

impl Labels {
    /// A text that begins `shift` pixels from `time`; lower ranks win the room.
    pub fn add(&mut self, time: i64, shift: i64, text: &str, rank: u8) {
        self.all.push(Label {
            time,
            shift,
            text: text.to_string(),
            rank,
            room: None,
        });
    }

    /// A text that is shown only where it fits between `from` and `to`.
    pub fn within(&mut self, from: i64, to: i64, text: &str) {
        self.all.push(Label {
            time: from,
            shift: 4,
            text: text.to_string(),
            rank: STORY,
            room: Some(to),
        });
    }

    pub fn draw(mut self, pen: &mut Pen, y: i64, class: &str) {
        if self.all.is_empty() {
            return;
        }
        self.all.sort_by_key(|l| (l.time, l.rank));
        let mut taken: Vec<(f64, f64)> = Vec::new();
        let mut shown = vec![false; self.all.len()];
        for rank in [STORY, MAIN, REST] {
            for (n, label) in self.all.iter().enumerate().filter(|(_, l)| l.rank == rank) {
                let width = label.text.chars().count() as f64 * CHAR;
                let from = (pen.x(label.time) + label.shift as f64).min(WIDTH as f64 - width);
                let to = from + width + GAP;
                let fits = label.room.is_none_or(|room| to <= pen.x(room));
                if fits && taken.iter().all(|(a, b)| to <= *a || *b <= from) {
                    taken.push((from, to));
                    shown[n] = true;
                }
            }
        }
        pen.add(format_args!("<g class=\"labels {class}\">"));
        for (label, shown) in self.all.iter().zip(shown) {
            let width = label.text.chars().count() as f64 * CHAR;
            let x = pen.x(label.time) + label.shift as f64;
            let shift = label.shift as f64 - (x + width - WIDTH as f64).max(0.0);
            let hidden = if shown { "" } else { " off" };
            let rank = label.rank;
            pen.at(&format!("label{hidden}"), label.time, y);
            let text = esc(&label.text);
            let room = label.room.map_or(String::new(), |room| {
                format!(" data-room=\"{:.6}\"", pen.fraction(room))
            });
            pen.add(format_args!(
                "<text x=\"{shift:.0}\" data-rank=\"{rank}\"{room}>{text}</text>"
            ));
            pen.end();
        }
        pen.end();
    }
}
