//! Draws the arrival times and sizes of a flow's transfers.

use anabranch_algo::{Span, Time};
use anabranch_sim::Rng;

use crate::scenario::{Arrivals, Sizes};

/// The distribution of times and sizes of transfers, all random by the seed.
pub(crate) struct TransferDraw<'a> {
    pub(crate) arrivals: &'a Arrivals,
    /// Mean size of the transfers, bytes; not used with a list.
    pub(crate) mean_bytes: f64,
    /// Largest size for [`Sizes::Pareto`], bytes; infinite if there is none.
    pub(crate) most_bytes: f64,
    /// Sizes for [`Sizes::List`], bytes.
    pub(crate) list_bytes: Vec<u64>,
    pub(crate) rng: Rng,
}

impl TransferDraw<'_> {
    /// Returns all transfers that arrive from `start` on and before `end`: time and size in bytes, at least
    /// one.
    pub(crate) fn until(mut self, start: Time, end: Time) -> Vec<(Time, u64)> {
        let (mut transfers, mut at) = (Vec::new(), start);
        let least_bytes = pareto_least(self.mean_bytes, self.most_bytes, self.arrivals.shape);
        loop {
            let gap = self.arrivals.every.0.as_nanos() as f64 * self.exponential();
            at += Span::from_nanos(gap as u64);
            if at >= end {
                return transfers;
            }
            let bytes = self.bytes(least_bytes);
            transfers.push((at, bytes.max(1)));
        }
    }

    fn bytes(&mut self, least_bytes: f64) -> u64 {
        match self.arrivals.sizes {
            Sizes::Fixed => self.mean_bytes as u64,
            Sizes::Exponential => (self.mean_bytes * self.exponential()).round() as u64,
            Sizes::Pareto => {
                let shape = self.arrivals.shape;
                // Invert the distribution function, whose part above the bound is cut off.
                let cut = 1.0 - (least_bytes / self.most_bytes).powf(shape);
                let bytes = least_bytes / (1.0 - cut * self.rng.unit()).powf(1.0 / shape);
                bytes.round() as u64
            }
            Sizes::List => {
                let place = self.rng.below(self.list_bytes.len() as u64) as usize;
                self.list_bytes.get(place).copied().unwrap_or(1)
            }
        }
    }

    /// Draws from an exponential distribution with mean 1.
    fn exponential(&mut self) -> f64 {
        -(1.0 - self.rng.unit()).ln()
    }
}

/// Returns the least value of a Pareto distribution with this mean, bound and shape (above 1).
fn pareto_least(mean: f64, most: f64, shape: f64) -> f64 {
    let free = mean * (shape - 1.0) / shape;
    if !most.is_finite() {
        return free;
    }
    // The mean grows with the least value, which lies between the least value without a bound and the mean.
    let mean_of = |least: f64| {
        let ratio = least / most;
        shape / (shape - 1.0) * least * (1.0 - ratio.powf(shape - 1.0)) / (1.0 - ratio.powf(shape))
    };
    let (mut low, mut high) = (free, mean);
    for _ in 0..64 {
        let middle = f64::midpoint(low, high);
        if mean_of(middle) < mean { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Duration;

    const MEAN: f64 = 100_000.0;

    fn draw(sizes: Sizes, shape: f64, most_bytes: f64) -> Vec<(Time, u64)> {
        let every = Duration(Span::from_millis(5));
        let arrivals = Arrivals { every, sizes, shape, most: None, list: Vec::new() };
        let list_bytes = vec![10_000, 20_000, 270_000];
        let rng = Rng::new(7);
        let draw = TransferDraw { arrivals: &arrivals, mean_bytes: MEAN, most_bytes, list_bytes, rng };
        draw.until(Time::ZERO, Time::ZERO + Span::from_secs(1_000))
    }

    fn sizes(transfers: &[(Time, u64)]) -> Vec<f64> {
        transfers.iter().map(|(_, bytes)| *bytes as f64).collect()
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn arrivals_are_a_poisson_process() {
        let transfers = draw(Sizes::Fixed, 1.5, f64::INFINITY);
        // 200,000 are expected; the variance of a Poisson number is its mean.
        assert!((transfers.len() as f64 - 200_000.0).abs() < 4.0 * 200_000_f64.sqrt(), "{}", transfers.len());
        let in_second =
            |s: u64| transfers.iter().filter(|(at, _)| at.as_nanos() / 1_000_000_000 == s).count();
        let counts: Vec<f64> = (0..1_000).map(|s| in_second(s) as f64).collect();
        let (m, square) = (mean(&counts), mean(&counts.iter().map(|n| n * n).collect::<Vec<_>>()));
        assert!(((square - m * m) / m - 1.0).abs() < 0.15, "the index of dispersion is 1");
        assert!(sizes(&transfers).iter().all(|size| *size == MEAN));
    }

    #[test]
    fn sizes_have_their_distribution() {
        let exponential = sizes(&draw(Sizes::Exponential, 1.5, f64::INFINITY));
        assert!((mean(&exponential) / MEAN - 1.0).abs() < 0.01);
        let above = |sizes: &[f64], x: f64| {
            sizes.iter().filter(|size| **size > x).count() as f64 / sizes.len() as f64
        };
        assert!((above(&exponential, 2.0 * MEAN) - (-2.0_f64).exp()).abs() < 0.005);
        // P(X > x) = (least / x) ** shape.
        let pareto = sizes(&draw(Sizes::Pareto, 2.5, f64::INFINITY));
        assert!((mean(&pareto) / MEAN - 1.0).abs() < 0.02, "{}", mean(&pareto));
        assert!((above(&pareto, 2.0 * MEAN) - (0.6_f64 / 2.0).powf(2.5)).abs() < 0.003);
        let bounded = sizes(&draw(Sizes::Pareto, 1.2, 20.0 * MEAN));
        assert!((mean(&bounded) / MEAN - 1.0).abs() < 0.02, "{}", mean(&bounded));
        assert!(bounded.iter().all(|size| *size <= 20.0 * MEAN) && above(&bounded, 10.0 * MEAN) > 0.001);
        let list = sizes(&draw(Sizes::List, 1.5, f64::INFINITY));
        assert!((mean(&list) / MEAN - 1.0).abs() < 0.02 && (above(&list, 15_000.0) - 2.0 / 3.0).abs() < 0.01);
    }
}
