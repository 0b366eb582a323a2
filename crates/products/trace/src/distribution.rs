//! Distributions in constant memory: values in buckets an eighth of a power of two wide.

use serde::Serialize;

/// The buckets into which a power of two is divided.
const PARTS: u64 = 8;
const PARTS_LOG2: u32 = 3;

/// Counts how often values occurred, or how much weight they had. Quantiles are wrong by at most 12 %.
#[derive(Clone, Debug, Default)]
pub(crate) struct Distribution {
    buckets: Vec<u64>,
    samples: u64,
    weight: u64,
    sum: u128,
    min: u64,
    max: u64,
}

/// A distribution as it is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// The number of values.
    pub samples: u64,
    /// The least value.
    pub min: u64,
    /// The mean of the values, weighted as the quantiles are.
    pub mean: f64,
    /// The median: half of the weight is at most this.
    pub p50: u64,
    /// The 90 % quantile: 90 % of the weight is at most this.
    pub p90: u64,
    /// The 99 % quantile: 99 % of the weight is at most this.
    pub p99: u64,
    /// The greatest value.
    pub max: u64,
}

fn bucket(value: u64) -> usize {
    if value < PARTS {
        return value as usize;
    }
    let shift = value.ilog2() - PARTS_LOG2;
    (u64::from(shift + 1) * PARTS + (value >> shift) - PARTS) as usize
}

/// Returns the greatest value of a bucket.
fn bucket_end(index: usize) -> u64 {
    let index = index as u64;
    if index < PARTS {
        return index;
    }
    let shift = index / PARTS - 1;
    let begin = u128::from(PARTS + index % PARTS) << shift;
    u64::try_from(begin + (1 << shift) - 1).unwrap_or(u64::MAX)
}

impl Distribution {
    pub(crate) fn add(&mut self, value: u64, weight: u64) {
        if self.samples == 0 {
            self.min = value;
        }
        let index = bucket(value);
        if index >= self.buckets.len() {
            self.buckets.resize(index + 1, 0);
        }
        if let Some(count) = self.buckets.get_mut(index) {
            *count += weight;
        }
        self.samples += 1;
        self.weight += weight;
        self.sum += u128::from(value) * u128::from(weight);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    pub(crate) const fn max(&self) -> u64 {
        self.max
    }

    fn quantile(&self, percent: u64) -> u64 {
        let wanted = u128::from(self.weight) * u128::from(percent);
        let mut below: u128 = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            below += u128::from(*count) * 100;
            if below >= wanted {
                return bucket_end(index).min(self.max);
            }
        }
        self.max
    }

    /// Returns the weight of the values in the bucket of `limit` and below, and the weight of all values.
    pub(crate) fn below(&self, limit: u64) -> (u64, u64) {
        (self.buckets.iter().take(bucket(limit) + 1).sum(), self.weight)
    }

    /// Adds all values of another distribution.
    pub(crate) fn merge(&mut self, other: &Self) {
        if other.samples == 0 {
            return;
        }
        self.min = if self.samples == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.samples += other.samples;
        self.weight += other.weight;
        self.sum += other.sum;
        self.buckets.resize(self.buckets.len().max(other.buckets.len()), 0);
        for (count, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *count += more;
        }
    }

    /// Returns the quantiles, or `None` without samples.
    pub(crate) fn report(&self) -> Option<Quantiles> {
        (self.samples > 0).then(|| Quantiles {
            samples: self.samples,
            min: self.min,
            mean: self.sum as f64 / self.weight.max(1) as f64,
            p50: self.quantile(50),
            p90: self.quantile(90),
            p99: self.quantile(99),
            max: self.max,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_their_values() {
        for value in (0..4096).chain([u64::MAX, 1 << 40, (1 << 40) - 1]) {
            let end = bucket_end(bucket(value));
            assert!(end >= value && end - value <= value / 8, "{value} in a bucket to {end}");
        }
    }

    #[test]
    fn quantiles_by_weight() {
        let mut distribution = Distribution::default();
        for value in 1..=100 {
            distribution.add(value * 1000, 1);
        }
        let report = distribution.report().expect("samples");
        assert_eq!((report.samples, report.min, report.max), (100, 1000, 100_000));
        assert!((50_000..56_300).contains(&report.p50) && (99_000..=100_000).contains(&report.p99));
        assert_eq!(distribution.below(0), (0, 100));
        let mut twice = distribution.clone();
        twice.merge(&distribution);
        assert_eq!(
            (twice.below(u64::MAX), twice.report().map(|report| report.p50)),
            ((200, 200), Some(report.p50))
        );
        distribution.add(1_000_000, 10_000);
        assert_eq!(distribution.report().map(|report| report.p50), Some(1_000_000));
    }
}
