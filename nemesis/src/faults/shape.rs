//! What happens to each packet: a pure, seeded function of its time and length.

use std::time::Duration;

use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// How packets are bent. All zero: nothing happens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shape {
    /// Every packet waits this long.
    pub delay_ms: f64,
    /// … give or take up to this much, uniformly. Packets keep their order.
    pub jitter_ms: f64,
    /// Share of packets that vanish, 0 to 1.
    pub loss: f64,
    /// Share of packets that arrive twice, 0 to 1. Outgoing packets only.
    pub duplicate: f64,
    /// Share of packets that are held back while others overtake them, 0 to 1.
    pub reorder: f64,
    /// How long those are held back.
    pub reorder_by_ms: f64,
    /// Bytes a second that pass, 0 for no limit. The queue behind it grows without bound.
    pub rate: u64,
    /// TCP segments with payload that reach the targets vanish; all others pass: requests are
    /// applied and acknowledged, their replies never come.
    pub drop_replies: bool,
}

impl Shape {
    /// # Errors
    /// What is out of range.
    pub fn check(&self) -> Result<(), String> {
        for (name, share) in [
            ("loss", self.loss),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return Err(format!("{name} = {share} is no share: write 0 to 1"));
            }
        }
        for (name, ms) in [
            ("delay_ms", self.delay_ms),
            ("jitter_ms", self.jitter_ms),
            ("reorder_by_ms", self.reorder_by_ms),
        ] {
            if !(0.0..=60_000.0).contains(&ms) {
                return Err(format!("{name} = {ms} is out of range: write 0 to 60000"));
            }
        }
        if self.jitter_ms > self.delay_ms {
            return Err("jitter_ms is more than delay_ms: packets cannot be early".into());
        }
        if (self.reorder > 0.0) != (self.reorder_by_ms > 0.0) {
            return Err("reorder and reorder_by_ms go together".into());
        }
        if *self == Shape::default() {
            return Err(
                "nothing to do: give delay_ms, loss, duplicate, reorder, rate or drop_replies"
                    .into(),
            );
        }
        Ok(())
    }
}

/// What to do with one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Drop,
    /// Let it pass at this time (since the queue began), and once more if `twice`.
    Pass {
        at: Duration,
        twice: bool,
    },
}

/// The state behind a [`Shape`].
pub struct Shaper {
    shape: Shape,
    rng: ChaCha8Rng,
    /// When the last packet that keeps its order leaves.
    last: Duration,
    /// When the link is free again.
    free: Duration,
}

impl Shaper {
    pub fn new(shape: Shape, rng: ChaCha8Rng) -> Self {
        Shaper {
            shape,
            rng,
            last: Duration::ZERO,
            free: Duration::ZERO,
        }
    }

    /// Decides on a packet that came at `now`. Every packet draws the same number of times, so that
    /// the fate of the nth depends on the seed and n alone.
    pub fn fate(&mut self, now: Duration, packet: &[u8]) -> Fate {
        let draws: [f64; 4] = std::array::from_fn(|_| unit(&mut self.rng));
        let s = &self.shape;
        if (s.drop_replies && tcp_payload(packet) > 0) || draws[0] < s.loss {
            return Fate::Drop;
        }
        let delay = s.delay_ms + s.jitter_ms * (2.0 * draws[1] - 1.0);
        let mut at = now + Duration::from_secs_f64(delay.max(0.0) / 1e3);
        if s.rate > 0 {
            self.free =
                self.free.max(at) + Duration::from_secs_f64(packet.len() as f64 / s.rate as f64);
            at = self.free;
        }
        if draws[2] < s.reorder {
            at += Duration::from_secs_f64(s.reorder_by_ms / 1e3);
        } else {
            at = at.max(self.last);
            self.last = at;
        }
        Fate::Pass {
            at,
            twice: draws[3] < s.duplicate,
        }
    }
}

fn unit(rng: &mut impl Rng) -> f64 {
    rng.random()
}

/// Bytes of TCP payload in an IPv4 packet; 0 for everything else and for malformed packets.
pub fn tcp_payload(packet: &[u8]) -> usize {
    const TCP: u8 = 6;
    let payload = || {
        let first = *packet.first()?;
        let header = usize::from(first & 0xf) * 4;
        if first >> 4 != 4 || *packet.get(9)? != TCP {
            return None;
        }
        let total = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
        let offset = usize::from(*packet.get(header + 12)? >> 4) * 4;
        total.checked_sub(header + offset)
    };
    payload().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rand_chacha::rand_core::SeedableRng;

    fn run(shape: Shape, n: u64, len: usize) -> Vec<Fate> {
        shape.check().unwrap();
        let mut s = Shaper::new(shape, ChaCha8Rng::seed_from_u64(3));
        (0..n)
            .map(|i| s.fate(Duration::from_millis(i), &vec![0; len]))
            .collect()
    }

    fn times(fates: &[Fate]) -> Vec<Duration> {
        let at = |f: &Fate| match f {
            Fate::Pass { at, .. } => Some(*at),
            Fate::Drop => None,
        };
        fates.iter().filter_map(at).collect()
    }

    #[test]
    fn delay_and_jitter_keep_order_within_bounds() {
        let fates = run(
            Shape {
                delay_ms: 50.0,
                jitter_ms: 20.0,
                ..Shape::default()
            },
            500,
            100,
        );
        let at = times(&fates);
        assert!(at.is_sorted() && at.len() == 500);
        for (i, t) in at.iter().enumerate() {
            let waited = t.as_millis() as i64 - i as i64;
            assert!((29..=70).contains(&waited), "{waited}");
        }
    }

    #[test]
    fn shares_come_out_and_repeat_with_the_seed() {
        let shape = Shape {
            loss: 0.2,
            duplicate: 0.1,
            ..Shape::default()
        };
        let fates = run(shape.clone(), 5000, 100);
        assert_eq!(fates, run(shape, 5000, 100));
        let lost = fates.iter().filter(|f| **f == Fate::Drop).count();
        let twice = fates
            .iter()
            .filter(|f| matches!(f, Fate::Pass { twice: true, .. }))
            .count();
        assert!((900..1100).contains(&lost), "{lost}");
        assert!((320..480).contains(&twice), "{twice}");
    }

    #[test]
    fn reorder_lets_others_overtake_and_rate_spreads() {
        let shape = Shape {
            reorder: 0.3,
            reorder_by_ms: 20.0,
            ..Shape::default()
        };
        assert!(!times(&run(shape, 100, 100)).is_sorted());
        let at = times(&run(
            Shape {
                rate: 10_000,
                ..Shape::default()
            },
            100,
            100,
        ));
        assert_eq!(at[99].as_millis(), 1000);
    }

    #[test]
    fn payload_of_tcp_only() {
        let mut p = vec![0u8; 60];
        p[0] = 0x45;
        p[3] = 60;
        p[9] = 6;
        p[32] = 0x50;
        assert_eq!(tcp_payload(&p), 20);
        p[3] = 40;
        assert_eq!(tcp_payload(&p), 0);
        p[9] = 17;
        assert_eq!(tcp_payload(&p), 0);
        assert_eq!(tcp_payload(&[]), 0);
        assert_eq!(tcp_payload(&[0x4f; 10]), 0);
        let only = Shape {
            drop_replies: true,
            ..Shape::default()
        };
        let mut s = Shaper::new(only, ChaCha8Rng::seed_from_u64(3));
        p[9] = 6;
        p[3] = 60;
        assert_eq!(s.fate(Duration::ZERO, &p), Fate::Drop);
    }

    #[test]
    fn what_is_refused() {
        for bad in [
            Shape::default(),
            Shape {
                loss: 1.5,
                ..Shape::default()
            },
            Shape {
                delay_ms: -1.0,
                ..Shape::default()
            },
            Shape {
                delay_ms: 5.0,
                jitter_ms: 6.0,
                ..Shape::default()
            },
            Shape {
                reorder: 0.5,
                ..Shape::default()
            },
            Shape {
                delay_ms: f64::NAN,
                ..Shape::default()
            },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
