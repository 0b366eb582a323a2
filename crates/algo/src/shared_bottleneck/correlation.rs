//! Whether the delays of two paths rise and fall together: ours, not the RFC's.
//!
//! One queue delays all its packets by the same at the same time. So the mean delays of two paths through it
//! change by the same from one interval to the next, however different their samples are otherwise; those
//! through two queues change independently. Pearson's coefficient of the changes of E_T(OWD), rather than of
//! E_T(OWD) itself: what drifts slowly seems correlated with anything else that does. They are clipped, or
//! one large one in each (two slow starts that overshoot at about the same time) would outweigh all others.
//!
//! Noise that each path has of its own hides what they share: that they change independently says something
//! only where the changes are large beside what chance makes of the mean of so few samples.

use alloc::vec::Vec;

use super::parameters::{CLIP, CORRELATED_PERCENT, N, NOISE_FACTOR, PAIRS_MIN, UNCORRELATED_PERCENT};
use super::stats::{DelayDelta, PathStats};

/// DelayDeltas are scaled to fit into so many bits and a sign: [`N`] squares of them fit into an `i64` then.
const BITS: u32 = 24;

/// How two paths' delays go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Correlation {
    /// They rise and fall together.
    Correlated,
    /// They do not.
    Uncorrelated,
    /// They may or may not.
    Inconclusive,
    /// There is too little to tell, or too much noise.
    Unknown,
}

/// The changes of a path's mean delay over the last [`N`] intervals.
pub(super) struct DelayDeltas {
    /// Newest first, in a unit of their own; `None` where there is none.
    deltas: [Option<i64>; N - 1],
    /// Their mean square and that of what chance would make of them, ns².
    signal: u128,
    noise: u128,
    congested: bool,
}

impl DelayDeltas {
    pub(super) fn of(path: &PathStats) -> Self {
        let mut deltas = [None; N - 1];
        let (mut sizes, mut signal, mut noise) = (Vec::with_capacity(N), 0u128, 0u128);
        for (to, from) in deltas.iter_mut().zip(path.deltas()) {
            let Some(DelayDelta { by_ns, noise_ns2 }) = from else { continue };
            *to = Some(by_ns);
            sizes.push(by_ns.unsigned_abs());
            signal += u128::from(by_ns.unsigned_abs()).pow(2);
            noise += noise_ns2;
        }
        sizes.sort_unstable();
        let count = sizes.len().max(1) as u128;
        let typical = sizes.get(sizes.len() / 2).copied().unwrap_or(0);
        let most = sizes.last().copied().unwrap_or(0).min(typical.saturating_mul(CLIP));
        let shift = (u64::BITS - most.leading_zeros()).saturating_sub(BITS);
        let clip = |by_ns: i64| by_ns.signum() * (by_ns.unsigned_abs().min(most) >> shift) as i64;
        Self {
            deltas: deltas.map(|delta| delta.map(clip)),
            signal: signal / count,
            noise: noise / count,
            congested: path.summary().congested,
        }
    }

    pub(super) fn correlation(&self, other: &Self) -> Correlation {
        match self.correlation_percent(other) {
            Some(r) if r >= CORRELATED_PERCENT => Correlation::Correlated,
            Some(_) if !self.is_conclusive_with(other) => Correlation::Unknown,
            Some(r) if r < UNCORRELATED_PERCENT => Correlation::Uncorrelated,
            Some(_) => Correlation::Inconclusive,
            None => Correlation::Unknown,
        }
    }

    /// Whether a common queue could not hide in the noise of the two. If only one passes a bottleneck, it is
    /// its queue that the other would have to see; else each other's.
    fn is_conclusive_with(&self, other: &Self) -> bool {
        let clear = |path: &Self, noise: u128| path.signal > NOISE_FACTOR * noise;
        match (self.congested, other.congested) {
            (true, false) => clear(self, self.noise.max(other.noise)),
            (false, true) => clear(other, self.noise.max(other.noise)),
            _ => clear(self, self.noise) && clear(other, other.noise),
        }
    }

    /// The coefficient in percent, −100 to 100; `None` where there is too little to tell.
    pub(super) fn correlation_percent(&self, other: &Self) -> Option<i64> {
        let both = self.deltas.iter().zip(&other.deltas).filter_map(|(a, b)| Some(((*a)?, (*b)?)));
        let pairs: Vec<(i64, i64)> = both.collect();
        if pairs.len() < PAIRS_MIN {
            return None;
        }
        let n = pairs.len() as i64;
        let mean = pairs.iter().fold((0, 0), |(a, b), (x, y)| (a + x, b + y));
        let mean = (mean.0 / n, mean.1 / n);
        let (mut xy, mut xx, mut yy) = (0i64, 0i64, 0i64);
        for (x, y) in pairs {
            let (x, y) = (x - mean.0, y - mean.1);
            (xy, xx, yy) = (xy + x * y, xx + x * x, yy + y * y);
        }
        let whole = (i128::from(xx) * i128::from(yy)).isqrt();
        // Delays that never change are like nothing.
        Some((i128::from(xy) * 100).checked_div(whole).unwrap_or(0) as i64)
    }
}
