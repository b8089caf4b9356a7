//! Counts and times for metrics. Nothing here decides anything.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets, microseconds: 0.125 ms to 4 s, each twice the one before.
const BOUNDS: [u64; 16] = [
    125, 250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 512_000,
    1_024_000, 2_048_000, 4_096_000,
];

/// A histogram of durations that many threads may add to.
#[derive(Debug, Default)]
pub struct Times {
    buckets: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    micros: AtomicU64,
}

impl Times {
    /// Adds one.
    pub fn add(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        if let Some(at) = BOUNDS.iter().position(|bound| micros <= *bound) {
            self.buckets[at].fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Writes it in Prometheus' text format; `labels` such as `group="0"`, or nothing.
    pub fn write(&self, out: &mut String, name: &str, labels: &str) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut below = 0;
        for (bound, bucket) in BOUNDS.iter().zip(&self.buckets) {
            below += bucket.load(Ordering::Relaxed);
            let seconds = *bound as f64 / 1e6;
            let _ = writeln!(
                out,
                "{name}_bucket{{{labels}{comma}le=\"{seconds}\"}} {below}"
            );
        }
        let count = self.count.load(Ordering::Relaxed);
        let sum = self.micros.load(Ordering::Relaxed) as f64 / 1e6;
        let _ = writeln!(out, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}");
        let braces = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{labels}}}")
        };
        let _ = writeln!(
            out,
            "{name}_sum{braces} {sum}\n{name}_count{braces} {count}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_add_up() {
        let times = Times::default();
        for micros in [100, 125, 126, 10_000_000] {
            times.add(Duration::from_micros(micros));
        }
        let mut out = String::new();
        times.write(&mut out, "t_seconds", "group=\"1\"");
        assert!(
            out.contains("t_seconds_bucket{group=\"1\",le=\"0.000125\"} 2\n"),
            "{out}"
        );
        assert!(out.contains("t_seconds_bucket{group=\"1\",le=\"0.00025\"} 3\n"));
        assert!(out.contains("t_seconds_bucket{group=\"1\",le=\"+Inf\"} 4\n"));
        assert!(out.contains("t_seconds_count{group=\"1\"} 4\n"));
    }
}
