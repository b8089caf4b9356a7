//! Latencies and counts over time, in at most [`MAX_BUCKETS`] buckets: the
//! buckets double in width whenever the run outgrows them.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

pub const MAX_BUCKETS: usize = 240;
const FIRST_WIDTH: i64 = 100_000_000;
/// Operations by name that get a row of their own; a history has six.
const MAX_NAMES: usize = 12;

/// Outcomes of one operation in one stretch of time.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// Microseconds from the intended start (`due`) or else the invocation, of
    /// the calls answered ok that began here.
    pub latency: Histogram<u64>,
    pub invoked: u64,
    /// Calls whose ok was read here.
    pub ok: u64,
}

impl Bucket {
    fn new() -> Bucket {
        let latency =
            Histogram::new(2).expect("two significant digits are within the crate's range");
        Bucket {
            latency,
            invoked: 0,
            ok: 0,
        }
    }

    pub fn add(&mut self, other: &Bucket) {
        self.latency
            .add(&other.latency)
            .expect("auto-resizing histograms take any value");
        self.invoked += other.invoked;
        self.ok += other.ok;
    }
}

/// One operation over the whole run.
#[derive(Clone, Debug)]
pub struct Series {
    pub buckets: Vec<Bucket>,
    pub total: Bucket,
    pub failed: u64,
    pub unknown: u64,
}

/// All operations, over common buckets.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// Width of a bucket in nanoseconds.
    pub width: i64,
    pub series: BTreeMap<String, Series>,
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies {
            width: FIRST_WIDTH,
            series: BTreeMap::new(),
        }
    }
}

impl Latencies {
    pub fn invoked(&mut self, f: &str, start: i64) {
        if let Some(s) = self.series(f) {
            s.total.invoked += 1;
        }
        if let Some(b) = self.bucket(f, start) {
            b.invoked += 1;
        }
    }

    /// An answer ok to a call that was meant to start at `start`.
    pub fn ok(&mut self, f: &str, start: i64, end: i64) {
        let micros = u64::try_from((end - start).max(0) / 1_000).unwrap_or(0);
        if let Some(s) = self.series(f) {
            s.total.ok += 1;
            record(&mut s.total.latency, micros);
        }
        if let Some(b) = self.bucket(f, start) {
            record(&mut b.latency, micros);
        }
        if let Some(b) = self.bucket(f, end) {
            b.ok += 1;
        }
    }

    pub fn failed(&mut self, f: &str) {
        if let Some(s) = self.series(f) {
            s.failed += 1;
        }
    }

    /// A call of unknown outcome, or one that was never answered.
    pub fn unknown(&mut self, f: &str) {
        if let Some(s) = self.series(f) {
            s.unknown += 1;
        }
    }

    fn series(&mut self, f: &str) -> Option<&mut Series> {
        if !self.series.contains_key(f) {
            if self.series.len() >= MAX_NAMES {
                return None;
            }
            let fresh = Series {
                buckets: Vec::new(),
                total: Bucket::new(),
                failed: 0,
                unknown: 0,
            };
            self.series.insert(f.to_string(), fresh);
        }
        self.series.get_mut(f)
    }

    fn bucket(&mut self, f: &str, time: i64) -> Option<&mut Bucket> {
        let time = time.max(0);
        while time / self.width >= MAX_BUCKETS as i64 {
            self.double()?;
        }
        let at = (time / self.width) as usize;
        let series = self.series(f)?;
        while series.buckets.len() <= at {
            series.buckets.push(Bucket::new());
        }
        series.buckets.get_mut(at)
    }

    fn double(&mut self) -> Option<()> {
        self.width = self.width.checked_mul(2)?;
        for series in self.series.values_mut() {
            let old = std::mem::take(&mut series.buckets);
            series.buckets = old
                .chunks(2)
                .map(|pair| {
                    let mut sum = pair[0].clone();
                    if let Some(second) = pair.get(1) {
                        sum.add(second);
                    }
                    sum
                })
                .collect();
        }
        Some(())
    }
}

fn record(histogram: &mut Histogram<u64>, micros: u64) {
    // Histograms resize themselves, so that no value is out of range.
    let _ = histogram.record(micros);
}

/// Percentile in milliseconds; `None` without samples.
pub fn percentile_ms(histogram: &Histogram<u64>, percentile: f64) -> Option<f64> {
    (!histogram.is_empty()).then(|| histogram.value_at_percentile(percentile) as f64 / 1_000.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn buckets_stay_bounded_and_lose_nothing() {
        let mut all = Latencies::default();
        for second in 0..10_000_i64 {
            let start = second * 1_000_000_000;
            all.invoked("acquire", start);
            all.ok("acquire", start, start + 2_000_000);
        }
        let s = &all.series["acquire"];
        assert!(s.buckets.len() <= MAX_BUCKETS);
        assert_eq!(s.buckets.iter().map(|b| b.invoked).sum::<u64>(), 10_000);
        assert_eq!(s.buckets.iter().map(|b| b.ok).sum::<u64>(), 10_000);
        let p50 = percentile_ms(&s.total.latency, 50.0).unwrap();
        assert!((1.9..2.1).contains(&p50), "{p50}");
    }

    #[test]
    fn times_of_any_size_are_taken() {
        let mut all = Latencies::default();
        all.invoked("read", -5);
        all.ok("read", i64::MAX, i64::MAX);
        all.ok("read", i64::MAX, 0);
        assert_eq!(all.series["read"].total.ok, 2);
    }
}
