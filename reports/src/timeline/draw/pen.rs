//! Writes SVG elements at times, and escapes whatever comes from a history.

use std::collections::BTreeSet;
use std::fmt::Write;

pub const WIDTH: i64 = 1_100;
pub const GUTTER: i64 = 112;
const PAD: i64 = 18;

pub struct Pen<'a> {
    pub from: i64,
    pub to: i64,
    pub out: String,
    linked: &'a dyn Fn(u64) -> bool,
    story: BTreeSet<u64>,
}

/// `text` for element content and attribute values.
pub fn esc(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && c != '\n' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

impl<'a> Pen<'a> {
    pub fn new(
        from: i64,
        to: i64,
        linked: &'a dyn Fn(u64) -> bool,
        story: BTreeSet<u64>,
    ) -> Pen<'a> {
        Pen {
            from,
            to: to.max(from + 1),
            out: String::new(),
            linked,
            story,
        }
    }

    pub fn in_story(&self, index: u64) -> bool {
        self.story.contains(&index)
    }

    pub fn fraction(&self, time: i64) -> f64 {
        let length = (self.to - self.from) as f64;
        ((time as f64 - self.from as f64) / length).clamp(0.0, 1.0)
    }

    pub fn x(&self, time: i64) -> f64 {
        GUTTER as f64 + self.fraction(time) * (WIDTH - GUTTER - PAD) as f64
    }

    pub fn add(&mut self, text: std::fmt::Arguments<'_>) {
        self.out
            .write_fmt(text)
            .expect("writing to a string cannot fail");
    }

    /// Begins what stands for an event: a link to it where it is shown. `tip` is
    /// its hover text, one fact a line.
    pub fn open(&mut self, index: u64, class: &str, tip: &str) {
        let tip = esc(tip);
        if (self.linked)(index) {
            self.add(format_args!(
                "<a href=\"#e{index}\" class=\"it {class}\"><title>{tip}</title>"
            ));
        } else {
            self.add(format_args!("<g class=\"it {class}\"><title>{tip}</title>"));
        }
    }

    pub fn close(&mut self, index: u64) {
        let end = if (self.linked)(index) { "</a>" } else { "</g>" };
        self.out.push_str(end);
    }

    pub fn bar(&mut self, class: &str, from: i64, to: i64, y: i64, height: i64) {
        let (x, end) = (self.x(from), self.x(to));
        let width = (end - x).max(2.0);
        let (a, b) = (self.fraction(from), self.fraction(to));
        self.add(format_args!(
            "<rect class=\"{class}\" data-a=\"{a:.6}\" data-b=\"{b:.6}\" x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{height}\"/>"
        ));
    }

    pub fn line(&mut self, class: &str, from: i64, to: i64, y: i64) {
        let (x, end) = (self.x(from), self.x(to));
        let (a, b) = (self.fraction(from), self.fraction(to));
        self.add(format_args!(
            "<line class=\"{class}\" data-a=\"{a:.6}\" data-b=\"{b:.6}\" x1=\"{x:.1}\" x2=\"{end:.1}\" y1=\"{y}\" y2=\"{y}\"/>"
        ));
    }

    /// Begins a group whose origin is at `time` and `y`.
    pub fn at(&mut self, class: &str, time: i64, y: i64) {
        let (a, x) = (self.fraction(time), self.x(time));
        self.add(format_args!(
            "<g class=\"{class}\" data-a=\"{a:.6}\" data-y=\"{y}\" transform=\"translate({x:.1} {y})\">"
        ));
    }

    pub fn end(&mut self) {
        self.out.push_str("</g>");
    }

    /// A mark whose shape alone tells what it is.
    pub fn glyph(&mut self, class: &str, time: i64, y: i64) {
        self.at("glyph", time, y);
        let shape = match class {
            "accepted" => "<circle class=\"accepted\" r=\"4.5\"/>",
            "seen" => "<circle class=\"seen\" r=\"3\"/>",
            "stale" => {
                "<path class=\"stale\" d=\"M0-8 8 0 0 8-8 0Z\"/><path class=\"stale-in\" d=\"M0-4V1M0 3V4.4\"/>"
            }
            "refused" => "<path class=\"refused\" d=\"M-5-5 5 5M5-5-5 5\"/>",
            "tried" => "<path class=\"tried\" d=\"M-3-3 3 3M3-3-3 3\"/>",
            "mark" => "<path class=\"mark\" d=\"M-4-5H4L0 2Z\"/>",
            _ => "<path class=\"unknown\" d=\"M0-5 5 0 0 5-5 0Z\"/>",
        };
        self.out.push_str(shape);
        self.end();
    }

    /// A lane's background and its name in the gutter.
    pub fn strip(&mut self, name: &str, sub: &str, y: i64, height: i64) {
        let (name, sub) = (esc(name), esc(sub));
        let bottom = y + height;
        self.add(format_args!(
            "<line class=\"lane-edge full\" x1=\"0\" x2=\"{WIDTH}\" y1=\"{bottom}\" y2=\"{bottom}\"/>\
             <g class=\"lane-name\"><rect y=\"{}\" width=\"{}\" height=\"{}\"/><text x=\"4\" y=\"{}\">{name}</text><text class=\"sub\" x=\"4\" y=\"{}\">{sub}</text></g>",
            y + 1,
            GUTTER - 16,
            height - 2,
            y + 21,
            y + 36
        ));
    }

    /// A base line over the whole width.
    pub fn rule(&mut self, y: i64) {
        let (from, to) = (self.from, self.to);
        self.line("rule", from, to, y);
    }

    pub fn tick(&mut self, time: i64, y: i64, bottom: i64, text: &str) {
        self.at("tick", time, 0);
        let text = esc(text);
        self.add(format_args!(
            "<line y1=\"{}\" y2=\"{bottom}\"/><text y=\"{y}\">{text}</text>",
            y + 5
        ));
        self.end();
    }

    /// The thin line below a numbered step.
    pub fn guide(&mut self, time: i64, top: i64, bottom: i64, n: usize) {
        self.at("guide", time, 0);
        self.add(format_args!(
            "<line data-step=\"{n}\" y1=\"{top}\" y2=\"{bottom}\"/>"
        ));
        self.end();
    }

    pub fn badge(&mut self, index: u64, time: i64, y: i64, n: usize) {
        self.add(format_args!("<a href=\"#step-{n}\" class=\"it step\" data-step=\"{n}\"><title>step {n}, event {index}</title>"));
        self.at("badge", time, y);
        self.add(format_args!("<circle r=\"9\"/><text y=\"4\">{n}</text>"));
        self.end();
        self.out.push_str("</a>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_history_becomes_markup() {
        assert_eq!(
            esc("<a href=\"x\">'&\u{7}"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;\u{fffd}"
        );
    }

    #[test]
    fn times_beyond_the_window_stay_inside() {
        let linked = |_| false;
        let pen = Pen::new(0, 10, &linked, BTreeSet::new());
        assert_eq!(pen.x(i64::MIN), GUTTER as f64);
        assert_eq!(pen.x(i64::MAX), (WIDTH - PAD) as f64);
    }
}
