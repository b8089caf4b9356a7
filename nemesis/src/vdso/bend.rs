//! How a clock is bent. Pure: the same arithmetic runs, in assembly, inside the target.

use std::time::{Duration, SystemTime};

/// What happens to one clock; all zero: nothing. This is also its layout in the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Bend {
    /// Added, nanoseconds.
    pub offset: i64,
    /// Reading of the true clock at which drift and strobe begin, nanoseconds.
    pub since: i64,
    /// Extra speed, in 2⁻³² of the true one.
    pub rate: i64,
    /// If not 0: the offset holds only in every other period of this many nanoseconds.
    pub period: i64,
}

/// The two clocks that can be bent apart from each other. Layout of the target's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Bends {
    /// `CLOCK_REALTIME`, its coarse and alarm kinds, `CLOCK_TAI`; `gettimeofday`, `time`.
    pub wall: Bend,
    /// `CLOCK_MONOTONIC`, its raw and coarse kinds, `CLOCK_BOOTTIME`.
    pub monotonic: Bend,
}

impl Bend {
    /// The bent reading for a true one (nanoseconds). Never negative.
    pub fn apply(&self, now: i64) -> i64 {
        let gone = now.wrapping_sub(self.since);
        let drift = ((i128::from(gone) * i128::from(self.rate)) >> 32) as i64;
        let holds = self.period == 0 || (gone / self.period) & 1 == 0;
        now.wrapping_add(drift)
            .wrapping_add(if holds { self.offset } else { 0 })
            .max(0)
    }

    pub fn is_nothing(&self) -> bool {
        self.offset == 0 && self.rate == 0
    }
}

impl Bends {
    pub const SIZE: usize = size_of::<Bends>();

    pub fn bytes(&self) -> Vec<u8> {
        [self.wall, self.monotonic]
            .iter()
            .flat_map(|b| [b.offset, b.since, b.rate, b.period])
            .flat_map(i64::to_le_bytes)
            .collect()
    }
}

/// Our own wall clock, nanoseconds since the epoch.
pub fn wall_now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    nanos(since.unwrap_or_default())
}

/// Our own monotonic clock, nanoseconds.
pub fn monotonic_now() -> i64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.map_or(0, |t| nanos(Duration::from(t)))
}

fn nanos(d: Duration) -> i64 {
    i64::try_from(d.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jump_drift_strobe() {
        let jump = Bend {
            offset: -50,
            ..Bend::default()
        };
        assert_eq!((jump.apply(100), jump.apply(20)), (50, 0));
        let half_again = Bend {
            since: 1000,
            rate: 1 << 31,
            ..Bend::default()
        };
        assert_eq!(
            (half_again.apply(1000), half_again.apply(3000)),
            (1000, 4000)
        );
        let strobe = Bend {
            offset: 7,
            since: 100,
            period: 10,
            ..Bend::default()
        };
        assert_eq!(
            (strobe.apply(105), strobe.apply(115), strobe.apply(125)),
            (112, 115, 132)
        );
        assert_eq!(Bend::default().apply(42), 42);
    }
}
