//! Implements a histogram of times, with logarithmic buckets that are divided into equal parts.

use anabranch_algo::Span;

/// The binary logarithm of [`PARTS`], the number of parts of a power of two. A quantile is at most 1/32 too
/// high.
const PART_BITS: u32 = 5;
const PARTS: usize = 1 << PART_BITS;
/// The bits of the largest time: all times from 2^40 ns (18 minutes) on are in the last bucket.
const VALUE_BITS: u32 = 40;
const BUCKETS: usize = (VALUE_BITS - PART_BITS + 1) as usize * PARTS;

/// Counts times, to within 3 %.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    count: u64,
    max: Span,
    sum_nanos: u128,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]), count: 0, max: Span::ZERO, sum_nanos: 0 }
    }
}

/// Returns the bucket of a time. Times below 2^5 ns have a bucket each; above, each power of two has 32.
fn bucket(nanos: u64) -> usize {
    let shift = (64 - nanos.leading_zeros()).saturating_sub(PART_BITS + 1);
    let part = (nanos >> shift) as usize;
    (shift as usize * PARTS + part).min(BUCKETS - 1)
}

/// Returns the largest time of a bucket in nanoseconds.
fn upper_nanos(bucket: usize) -> u64 {
    if bucket < 2 * PARTS {
        return bucket as u64;
    }
    let shift = bucket / PARTS - 1;
    let part = (bucket % PARTS + PARTS) as u64;
    ((part + 1) << shift) - 1
}

impl Histogram {
    /// Makes an empty histogram.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a time.
    #[inline]
    pub fn record(&mut self, span: Span) {
        self.counts[bucket(span.as_nanos())] += 1;
        self.count += 1;
        self.max = self.max.max(span);
        self.sum_nanos += u128::from(span.as_nanos());
    }

    /// Returns the number of times that were counted.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the longest time, exactly; zero if no time was counted.
    #[must_use]
    pub const fn max(&self) -> Span {
        self.max
    }

    /// Returns the mean, exactly; zero if no time was counted.
    #[must_use]
    pub fn mean(&self) -> Span {
        let mean = self.sum_nanos.checked_div(u128::from(self.count)).unwrap_or(0);
        Span::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// Returns the time that the share `q` of the times, 0 to 1, does not exceed: `quantile(0.5)` is the
    /// median. Returns zero if no time was counted. The result is at most 1/32 too long, and never above
    /// [`max`](Self::max).
    #[must_use]
    pub fn quantile(&self, q: f64) -> Span {
        let rank = (q.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                let upper = if bucket == BUCKETS - 1 { u64::MAX } else { upper_nanos(bucket) };
                return self.max.min(Span::from_nanos(upper));
            }
        }
        Span::ZERO
    }

    /// Returns a histogram of the times counted after `earlier`, an earlier state of this histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut rest = self.clone();
        rest.counts.iter_mut().zip(earlier.counts.iter()).for_each(|(now, then)| *now -= *then);
        rest.count -= earlier.count;
        rest.sum_nanos -= earlier.sum_nanos;
        rest
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts.iter()).for_each(|(mine, theirs)| *mine += theirs);
        self.count += other.count;
        self.max = self.max.max(other.max);
        self.sum_nanos += other.sum_nanos;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_the_bucket_that_ends_at_or_just_above_it() {
        let mut values: Vec<u64> = (0..200_000).collect();
        values.extend((17..40).flat_map(|bits| {
            let top = 1u64 << bits;
            [top - 1, top, top + 1, top + top / 3]
        }));
        for nanos in values {
            let upper = upper_nanos(bucket(nanos));
            assert!(upper >= nanos && upper - nanos <= nanos / PARTS as u64, "{nanos}: {upper}");
            assert_eq!(bucket(upper), bucket(nanos));
            assert_ne!(bucket(upper + 1), bucket(nanos));
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_of_a_known_distribution() {
        let mut half = Histogram::new();
        let mut rest = Histogram::new();
        assert_eq!((half.quantile(0.5), half.mean(), half.max()), (Span::ZERO, Span::ZERO, Span::ZERO));
        (1..=500).for_each(|us| half.record(Span::from_micros(us)));
        (501..=1_000).for_each(|us| rest.record(Span::from_micros(us)));
        half.add(&rest);
        assert_eq!((half.count(), half.max()), (1_000, Span::from_millis(1)));
        assert_eq!(half.mean(), Span::from_nanos(500_500));
        for (q, us) in [(0.0, 1), (0.5, 500), (0.99, 990), (1.0, 1_000)] {
            let (low, seen) = (us as f64 * 1e3, half.quantile(q).as_nanos() as f64);
            assert!(seen >= low && seen <= low * (1.0 + 1.0 / 32.0), "{q}: {seen}");
        }
        let later = half.since(&rest);
        assert_eq!((later.count(), later.mean()), (500, Span::from_nanos(250_500)));
        assert!((490_000..515_000).contains(&later.quantile(0.99).as_nanos()));
        let mut long = Histogram::new();
        long.record(Span::from_secs(4_000));
        assert_eq!(long.quantile(0.5), Span::from_secs(4_000));
    }
}
