//! A latency histogram with constant memory and a relative error below 1 %, and the median of a few rounds.
//! Recording takes a few instructions and does not allocate, because it happens for every delivery.

use serde::Serialize;

/// Number of buckets for each power of two.
const STEPS: u64 = 128;
const STEP_BITS: u32 = STEPS.trailing_zeros();

pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    highest: u64,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Latency {
    pub(crate) p50_ms: f64,
    pub(crate) p95_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        let buckets = bucket_of(u64::MAX) + 1;
        Self { counts: vec![0; buckets], total: 0, highest: 0 }
    }

    pub(crate) fn record(&mut self, nanos: u64) {
        self.counts[bucket_of(nanos)] += 1;
        self.total += 1;
        self.highest = self.highest.max(nanos);
    }

    /// Adds the values of another histogram.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(own, others)| *own += others);
        self.total += other.total;
        self.highest = self.highest.max(other.highest);
    }

    pub(crate) fn clear(&mut self) {
        self.counts.fill(0);
        self.total = 0;
        self.highest = 0;
    }

    /// The smallest recorded value that at least `percent` % of all values do not exceed, rounded up to the upper end
    /// of its bucket. 0 without values.
    pub(crate) fn percentile(&self, percent: f64) -> u64 {
        let rank = ((percent / 100.0 * self.total as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_end(bucket).min(self.highest);
            }
        }
        self.highest
    }

    pub(crate) fn summary(&self) -> Latency {
        let millis = |nanos: u64| (nanos as f64 / 1e3).round() / 1e3;
        Latency {
            p50_ms: millis(self.percentile(50.0)),
            p95_ms: millis(self.percentile(95.0)),
            p99_ms: millis(self.percentile(99.0)),
            max_ms: millis(self.highest),
        }
    }
}

/// The bucket of a value. Each value below `STEPS` has its own; for larger values the highest set bit and the
/// `STEP_BITS` bits after it select the bucket.
fn bucket_of(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let shift = value.ilog2() - STEP_BITS;
    let step = (value >> shift) - STEPS;
    ((u64::from(shift) + 1) * STEPS + step) as usize
}

/// The largest value of a bucket.
fn upper_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let shift = bucket / STEPS - 1;
    let lower = (STEPS + bucket % STEPS) << shift;
    lower + ((1u64 << shift) - 1)
}

/// The median; 0 without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

pub(crate) fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10f64.powi(decimals);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_have_no_gaps() {
        for bucket in 0..bucket_of(u64::MAX) {
            assert_eq!(bucket_of(upper_end(bucket)), bucket);
            assert_eq!(bucket_of(upper_end(bucket) + 1), bucket + 1);
        }
        assert_eq!(upper_end(bucket_of(u64::MAX)), u64::MAX);
    }

    #[test]
    fn percentiles_are_within_one_percent() {
        let mut histogram = Histogram::new();
        for value in 1..=100_000u64 {
            histogram.record(value * 1_000);
        }
        for (percent, exact) in [(50.0, 50e6), (95.0, 95e6), (99.0, 99e6), (100.0, 100e6)] {
            let found = histogram.percentile(percent) as f64;
            assert!((found - exact).abs() / exact < 0.01, "p{percent}: {found} instead of {exact}");
        }
    }

    #[test]
    fn a_percentile_of_few_values_is_a_recorded_value() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.percentile(99.0), 0);
        histogram.record(70);
        histogram.record(90);
        assert_eq!((histogram.percentile(50.0), histogram.percentile(51.0)), (70, 90));
        histogram.clear();
        assert_eq!(histogram.percentile(50.0), 0);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }
}
