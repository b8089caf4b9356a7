//! Whether packets are bent as a [`Shape`] says: what to send, and what the answers prove. Pure.

use std::time::Duration;

use super::shape::Shape;
use crate::net::measure::{Behaviour, Load};

/// Payload of our own packets, bytes.
const SIZE: usize = 1000;
/// How long a packet may take on a busy machine without being bent.
const PATIENCE: Duration = Duration::from_millis(400);

/// What one link showed.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Shown {
    #[serde(flatten)]
    pub udp: Behaviour,
    /// A request over TCP arrived; its reply arrived.
    pub asked: bool,
    pub answered: bool,
}

/// What to send so that the effect of a shape shows.
pub fn load(s: &Shape) -> Load {
    // Enough packets that one in ten thousand runs sees no effect of a rare share.
    let shares = [s.loss, s.duplicate, s.reorder]
        .into_iter()
        .filter(|p| *p > 0.0);
    let wanted = (9.0 / shares.fold(1.0, f64::min)).ceil().clamp(20.0, 900.0);
    let mut packets = wanted;
    let mut tail = PATIENCE;
    tail += Duration::from_secs_f64(2.5 * (s.delay_ms + s.jitter_ms + s.reorder_by_ms) / 1e3);
    if s.rate > 0 {
        let half_a_second = s.rate as f64 / 2.0 / SIZE as f64;
        packets = half_a_second.clamp(4.0, wanted.max(40.0));
        tail += Duration::from_secs_f64(2.5 * packets * SIZE as f64 / s.rate as f64);
    }
    let gap = Duration::from_micros(if s.rate > 0 { 0 } else { 1000 });
    Load {
        packets: packets as u32,
        gap,
        size: SIZE,
        tail,
    }
}

impl Shown {
    /// What of the shape is *not* to be seen, compared with before.
    pub fn lacks(&self, before: &Shown, shape: &Shape) -> Option<&'static str> {
        if shape.drop_replies {
            return match (self.asked, self.answered) {
                (true, false) if before.answered => None,
                (true, false) => Some("replies did not arrive before the fault either"),
                (false, _) => Some("requests do not arrive"),
                (true, true) => Some("replies still arrive"),
            };
        }
        if shape.delay_ms > 0.0 && shape.loss < 1.0 && !self.is_late(before, shape) {
            return Some("round trips take no longer");
        }
        if shape.loss > 0.0 && self.udp.loss() <= before.udp.loss() {
            return Some("no packet was lost");
        }
        if shape.duplicate > 0.0 && self.udp.copies == 0 {
            return Some("no packet came twice");
        }
        if shape.reorder > 0.0 && self.udp.overtaken == 0 {
            return Some("no packet was overtaken");
        }
        let needs_ms = |rate: u64| f64::from(self.udp.back) * SIZE as f64 / rate as f64 * 1e3;
        if shape.rate > 0 && self.udp.spread_ms < 0.5 * needs_ms(shape.rate) {
            return Some("packets come faster than the rate");
        }
        None
    }

    /// Whether round trips show the delay. The shortest one tells, unless the jitter may take all of
    /// the delay away.
    fn is_late(&self, before: &Shown, shape: &Shape) -> bool {
        let least = shape.delay_ms - shape.jitter_ms;
        if least < shape.delay_ms / 4.0 {
            return self.udp.rtt_ms - before.udp.rtt_ms >= shape.delay_ms * 0.5;
        }
        self.udp.min_ms >= least * 0.9 && self.udp.min_ms - before.udp.min_ms >= least * 0.5
    }

    /// After healing: whether anything of the shape is left.
    pub fn still_bent(&self, before: &Shown, shape: &Shape) -> bool {
        let slow = shape.delay_ms > 0.0 && self.is_late(before, shape);
        let loses = self.udp.loss() > before.udp.loss().max(shape.loss / 2.0);
        let silent = before.answered && !self.answered;
        slow || loses || silent || self.udp.copies > 0 || self.udp.back == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(sent: u32, back: u32, rtt_ms: f64) -> Shown {
        let udp = Behaviour {
            sent,
            back,
            rtt_ms,
            min_ms: rtt_ms,
            ..Behaviour::default()
        };
        Shown {
            udp,
            asked: true,
            answered: true,
        }
    }

    #[test]
    fn an_effect_must_differ_from_before() {
        let lossy = Shape {
            loss: 0.1,
            ..Shape::default()
        };
        let (whole, lost) = (shown(90, 90, 1.0), shown(90, 80, 1.0));
        assert!(lost.lacks(&whole, &lossy).is_none());
        assert!(whole.lacks(&whole, &lossy).is_some());
        assert!(lost.lacks(&lost, &lossy).is_some(), "lost as many before");
        let slow = Shape {
            delay_ms: 50.0,
            ..Shape::default()
        };
        assert!(shown(20, 20, 51.0).lacks(&whole, &slow).is_none());
        assert!(shown(20, 20, 20.0).lacks(&whole, &slow).is_some());
        assert!(shown(20, 20, 60.0).still_bent(&whole, &slow));
        assert!(!shown(20, 20, 3.0).still_bent(&whole, &slow));
        assert!(
            shown(20, 0, 0.0).still_bent(&whole, &slow),
            "nothing comes back"
        );
        let replies = Shape {
            drop_replies: true,
            ..Shape::default()
        };
        let cut = Shown {
            answered: false,
            ..whole
        };
        assert!(cut.lacks(&whole, &replies).is_none());
        assert!(cut.lacks(&cut, &replies).is_some());
        assert!(cut.still_bent(&whole, &replies));
    }

    #[test]
    fn rarer_shares_need_more_packets() {
        let n = |loss| {
            load(&Shape {
                loss,
                ..Shape::default()
            })
            .packets
        };
        assert_eq!((n(1.0), n(0.1), n(0.001)), (20, 90, 900));
        let slow = load(&Shape {
            rate: 10_000,
            ..Shape::default()
        });
        assert_eq!((slow.packets, slow.gap), (5, Duration::ZERO));
    }
}
