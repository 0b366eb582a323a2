//! Computes how much more one rule gives the clients of a draw than another, by rank (dissertation, Fig.
//! 4.16).

use crate::table::{SampleSummary, summary};

/// Number of ranks of a curve: from the slowest flow to the fastest in steps of 10 % of the flows.
pub const RANKS: usize = 11;

/// Curves by rank over many draws, of a rule and of another one. All draws have equal weight.
#[derive(Clone, Debug, PartialEq)]
pub struct RankGain {
    /// Rates by rank in percent of the fastest rate, by the rule and by the other (a.1, b.1).
    pub relative: [[f64; RANKS]; 2],
    /// Gain of each rank by the rule over the other, percent (a.2, b.2): the mean of the draws' gains.
    pub gain: [f64; RANKS],
    /// Gain of the slowest rank, percent, with its interval.
    pub slowest: Mean,
    /// Median of the gain of the slowest rank over the draws, percent.
    pub slowest_median: f64,
    /// Gain of the slowest rank's mean rate over all draws, percent. It contains no mean of ratios, which
    /// exceeds zero even if rates differ by chance alone.
    pub slowest_of_means: f64,
    /// Gain of all clients together by the rule over the other, percent.
    pub aggregate: Mean,
    /// Fraction of the ranks that gain, percent.
    pub gaining: f64,
}

impl RankGain {
    /// Computes the curves from the rates of all clients in each draw, by the rule and by the other.
    pub fn new<'a>(draws: impl Iterator<Item = [&'a [f64]; 2]>) -> Self {
        let mut relative = [[0.0; RANKS]; 2];
        let (mut gains, mut slowest_rates, mut gaining) = ([0.0; RANKS], [0.0; 2], 0.0);
        let (mut slowest, mut aggregate) = (Vec::new(), Vec::new());
        for rates in draws {
            let rates = rates.map(sorted);
            for (relative, rates) in relative.iter_mut().zip(&rates) {
                let fastest = rates.last().copied().unwrap_or(0.0).max(f64::MIN_POSITIVE);
                let of_fastest: Vec<f64> = rates.iter().map(|rate| 100.0 * rate / fastest).collect();
                add(relative, &at_ranks(&of_fastest));
            }
            let [rule, other] = &rates;
            let gain: Vec<f64> = rule.iter().zip(other).map(|(rule, other)| more(*rule, *other)).collect();
            add(&mut gains, &at_ranks(&gain));
            slowest.push(gain.first().copied().unwrap_or(0.0));
            for (sum, rates) in slowest_rates.iter_mut().zip(&rates) {
                *sum += rates.first().copied().unwrap_or(0.0);
            }
            aggregate.push(more(sum(rule), sum(other)));
            gaining +=
                100.0 * gain.iter().filter(|gain| **gain > 0.0).count() as f64 / gain.len().max(1) as f64;
        }
        let draws = slowest.len().max(1) as f64;
        Self {
            relative: relative.map(|curve| curve.map(|value| value / draws)),
            gain: gains.map(|value| value / draws),
            slowest: Mean::of(&slowest),
            slowest_median: at_ranks(&sorted(&slowest))[RANKS / 2],
            slowest_of_means: more(slowest_rates[0], slowest_rates[1]),
            aggregate: Mean::of(&aggregate),
            gaining: gaining / draws,
        }
    }
}

/// A mean over draws, with half of its 95 % confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Half of the interval.
    pub half: f64,
}

impl Mean {
    pub(super) fn of(values: &[f64]) -> Self {
        let Some(SampleSummary { mean, ci95, .. }) = summary(values) else { return Self::default() };
        Self { mean, half: ci95.unwrap_or(0.0) }
    }

    /// Returns the mean of the networks' means, all with equal weight.
    pub(super) fn of_means(means: &[Self]) -> Self {
        let n = means.len().max(1) as f64;
        let squares: f64 = means.iter().map(|m| m.half * m.half).sum();
        Self { mean: means.iter().map(|m| m.mean).sum::<f64>() / n, half: squares.sqrt() / n }
    }
}

fn add(sums: &mut [f64; RANKS], values: &[f64; RANKS]) {
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}

/// Returns `sorted` at ranks from 0 to 100 percent, linearly interpolated.
fn at_ranks(sorted: &[f64]) -> [f64; RANKS] {
    let last = sorted.len().saturating_sub(1);
    std::array::from_fn(|rank| {
        let place = last as f64 * rank as f64 / (RANKS - 1) as f64;
        let (low, part) = (place.floor() as usize, place.fract());
        let value = |place: usize| sorted.get(place.min(last)).copied().unwrap_or(0.0);
        value(low) * (1.0 - part) + value(low + 1) * part
    })
}

fn sorted(rates: &[f64]) -> Vec<f64> {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Returns the sum of rates.
pub(super) fn sum(rates: &[f64]) -> f64 {
    rates.iter().sum()
}

/// Returns by how much `a` exceeds `b`, percent; zero if `b` is zero.
pub(super) fn more(a: f64, b: f64) -> f64 {
    if b > 0.0 { 100.0 * (a / b - 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_are_those_of_ranks_and_not_of_clients() {
        // Other clients have these rates: no rank gains.
        let same = RankGain::new([[&[1.0, 2.0, 4.0][..], &[4.0, 1.0, 2.0]]].into_iter());
        assert_eq!((same.gain, same.gaining, same.aggregate.mean), ([0.0; RANKS], 0.0, 0.0));
        assert_eq!(
            (same.relative[0][0], same.relative[1][RANKS / 2], same.relative[0][10]),
            (25.0, 50.0, 100.0)
        );
    }

    /// Twice in one draw and half in the next is no gain, but the mean of the two gains is +25 %.
    #[test]
    fn chance_alone_makes_a_mean_of_gains() {
        let draws: [[&[f64]; 2]; 2] = [[&[2.0, 9.0], &[1.0, 9.0]], [&[1.0, 9.0], &[2.0, 9.0]]];
        let ranks = RankGain::new(draws.into_iter());
        assert_eq!((ranks.gain[0], ranks.slowest.mean, ranks.slowest_median), (25.0, 25.0, 25.0));
        assert_eq!((ranks.slowest_of_means, ranks.gain[10], ranks.gaining), (0.0, 0.0, 25.0));
    }

    #[test]
    fn nothing_is_no_gain() {
        let none = RankGain::new(std::iter::empty());
        assert_eq!((none.gain, none.slowest, none.slowest_of_means), ([0.0; RANKS], Mean::default(), 0.0));
        // A client that had nothing has no gain in percent.
        assert_eq!(RankGain::new([[&[1.0][..], &[0.0]]].into_iter()).gain, [0.0; RANKS]);
    }
}
