//! Finds out whether the delays of two paths rise and fall together. The RFC has no such test.
//!
//! One queue delays all its packets by the same at the same time. So the mean delays of two paths through it
//! change by the same from one interval to the next, however different their samples are otherwise; those of
//! paths through two queues change independently. The test is Pearson's coefficient of the changes of the
//! mean delay, rather than of the delay itself, because a value that drifts slowly seems correlated with any
//! other that does. The changes are clipped: otherwise one large change in each path (two slow starts that
//! overshoot at about the same time) would outweigh all others.
//!
//! **Which interval?** A queue of a few milliseconds swings several times in 350 ms, and its mean over that
//! time does not show it. Where round trips are long, packets come in one burst a round trip, and only long
//! intervals have packets of both paths. Over long intervals there are few changes, so that chance has more
//! influence. So the paths are compared at six scales, T/32 (11 ms) to T (350 ms), the finest first. Paths
//! that go together at one scale are together, because only a common queue makes them do so. If a finer scale
//! has shown them apart, a coarser one must show a strong correlation: a queue that one path sees some time
//! later than the other looks like two queues to short intervals only.
//!
//! **When is no correlation evidence?** Independent changes are evidence only at a scale that could show the
//! queues: where there are enough changes; where they are large beside the changes that chance makes of the
//! mean of so few samples; and where they last, so that changes over twice the time are larger than those of
//! independent means (half of the mean square). A queue that swings faster than the interval does not pass
//! this test: each path has seen other phases of it. Changes that are small beside the round trip do not pass
//! either: behind a queue of a few packets each path sees mostly its own bursts.

use alloc::vec::Vec;

use super::parameters::{
    APART_PAIRS_MIN, CLEAR_DEVIATIONS, CLIP, CORRELATED_PERCENT, LIKE_DEVIATIONS, NOISE_FACTOR, PAIRS_MIN,
    PART_NOISE_FACTOR, PARTS, RECENT, RECENT_PERCENT, SLOW_PERCENT, SMALL_PART, STRONGLY_CORRELATED_PERCENT,
    UNCORRELATED_PERCENT,
};
use super::stats::{DelayDelta, PathStats, SCALES};

/// The number of scales: [`SCALES`], and whole intervals.
const SCALES_ALL: usize = SCALES.len() + 1;
/// The position in [`SCALES`] of T/4, the scale at which the newest intervals are compared.
const RECENT_SCALE: usize = 3;
/// Changes are scaled to fit into this many bits and a sign, so that the sum of their squares fits into an
/// `i64`.
const BITS: u32 = 24;

/// How the delays of two paths go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Correlation {
    /// The delays rise and fall together.
    Correlated,
    /// The delays rise and fall together more than chance explains, and both paths have a queue.
    ClearlyCorrelated,
    /// The delays clearly do not rise and fall together.
    Uncorrelated,
    /// The delays may or may not rise and fall together.
    Inconclusive,
    /// There is too little to tell, or too much noise.
    Unknown,
    /// There is nothing to compare, because neither path has a queue.
    NoQueue,
}

/// The changes of a path's mean delay at all scales.
pub(super) struct PathDeltas {
    scales: [ScaleDeltas; SCALES_ALL],
    /// The changes at [`RECENT_SCALE`], of the newest intervals only.
    recent: ScaleDeltas,
    congested: bool,
    /// The least mean square of changes that may be those of a queue, in ns².
    small: u128,
}

/// The changes of a path's mean delay at one scale.
struct ScaleDeltas {
    /// The changes, newest first, in a unit of their own; `None` where there is no change to tell.
    deltas: Vec<Option<i64>>,
    /// The mean squares of the changes, of the changes that chance would make, and of the changes over twice
    /// the time, in ns².
    signal: u128,
    noise: u128,
    slow: u128,
}

impl PathDeltas {
    pub(super) fn of(path: &PathStats) -> Self {
        let scales: [_; SCALES_ALL] = core::array::from_fn(|scale| path.deltas(scale));
        let newest = scales[RECENT_SCALE].len().min(RECENT * PARTS / SCALES[RECENT_SCALE]);
        let recent = ScaleDeltas::of(&scales[RECENT_SCALE][..newest]);
        let scales = scales.map(|deltas| ScaleDeltas::of(&deltas));
        let small = u128::from(path.rtt_min().over(SMALL_PART).as_nanos()).pow(2);
        Self { scales, recent, congested: path.summary().congested, small }
    }

    pub(super) fn correlation(&self, other: &Self) -> Correlation {
        let (mut apart, mut known) = (false, false);
        for scale in 0..SCALES_ALL {
            let (a, b) = (&self.scales[scale], &other.scales[scale]);
            let pairs = a.pairs(b);
            if scale < SCALES.len() && pairs.len() * 4 < a.deltas.len().min(b.deltas.len()) {
                // Packets come in bursts: the changes that both paths have do not stand for all.
                continue;
            }
            let Some(r) = percent(&pairs) else { continue };
            if r >= if apart { STRONGLY_CORRELATED_PERCENT } else { CORRELATED_PERCENT } {
                return Correlation::Correlated;
            }
            if pairs.len() >= APART_PAIRS_MIN && self.is_conclusive_with(other, scale) {
                (apart, known) = (apart || r < UNCORRELATED_PERCENT, true);
            }
        }
        if percent(&self.recent.pairs(&other.recent)).is_some_and(|r| r >= RECENT_PERCENT) {
            return Correlation::Correlated;
        }
        match (apart, known) {
            (true, _) => Correlation::Uncorrelated,
            (false, true) => Correlation::Inconclusive,
            (false, false) => Correlation::Unknown,
        }
    }

    /// Whether the delays rise and fall together at any scale, more than chance explains.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.scales.iter().zip(&other.scales).any(|(a, b)| {
            let pairs = a.pairs(b);
            pairs.len() >= APART_PAIRS_MIN && exceeds_chance(&pairs, LIKE_DEVIATIONS)
        })
    }

    /// Whether the delays rise and fall together in the newest intervals, beyond doubt. Earlier intervals do
    /// not count: two slow starts at the same time rise and fall together, whatever they pass.
    pub(super) fn is_clearly_like(&self, other: &Self) -> bool {
        let newest = SCALES.iter().map(|parts| RECENT * PARTS / parts);
        self.scales
            .iter()
            .zip(&other.scales)
            .zip(newest)
            .any(|((a, b), newest)| exceeds_chance(&a.newest_pairs(b, newest), CLEAR_DEVIATIONS))
    }

    /// Whether a common queue could not hide in the noise of the two paths. If only one path passes a
    /// bottleneck, the other would have to see its queue; otherwise each would have to see the queue of the
    /// other.
    fn is_conclusive_with(&self, other: &Self, scale: usize) -> bool {
        let factor = if scale < SCALES.len() { PART_NOISE_FACTOR } else { NOISE_FACTOR };
        let (a, b) = (&self.scales[scale], &other.scales[scale]);
        let small = self.small.max(other.small);
        let clear = |path: &ScaleDeltas, noise: u128| {
            path.lasts() && path.signal > factor * noise && path.signal >= small
        };
        // One path has seen changes that are too large for the other to overlook, whatever the other shows.
        let seen = |path: &ScaleDeltas, by: &ScaleDeltas| {
            clear(path, path.noise.max(by.noise)) && path.signal > NOISE_FACTOR * by.signal
        };
        match (self.congested, other.congested) {
            (true, false) => clear(a, a.noise.max(b.noise)),
            (false, true) => clear(b, a.noise.max(b.noise)),
            _ => clear(a, a.noise) && clear(b, b.noise) || seen(a, b) || seen(b, a),
        }
    }

    /// Returns the coefficient of the changes from interval to interval, in percent, −100 to 100; `None` if
    /// there is too little to tell.
    pub(super) fn correlation_percent(&self, other: &Self) -> Option<i64> {
        let whole = SCALES.len();
        percent(&self.scales[whole].pairs(&other.scales[whole]))
    }
}

impl ScaleDeltas {
    fn of(raw: &[Option<DelayDelta>]) -> Self {
        let by = |delta: &Option<DelayDelta>| delta.as_ref().map(|delta| delta.by_ns);
        let mut sizes: Vec<u64> = raw.iter().filter_map(by).map(i64::unsigned_abs).collect();
        let signal = mean_square(sizes.iter().copied());
        let noise = raw.iter().flatten().fold(0, |sum, delta| sum + delta.noise_ns2);
        let noise = noise / sizes.len().max(1) as u128;
        // This is the mean of two neighbours minus the mean of the two before them.
        let slow = raw.windows(3).filter_map(|three| {
            let (new, middle, old) = (by(&three[0])?, by(&three[1])?, by(&three[2])?);
            Some((new + 2 * middle + old).unsigned_abs() / 2)
        });
        let slow = mean_square(slow);
        sizes.sort_unstable();
        let typical = sizes.get(sizes.len() / 2).copied().unwrap_or(0);
        let most = sizes.last().copied().unwrap_or(0).min(typical.saturating_mul(CLIP));
        let shift = (u64::BITS - most.leading_zeros()).saturating_sub(BITS);
        let clip = |by_ns: i64| by_ns.signum() * (by_ns.unsigned_abs().min(most) >> shift) as i64;
        Self { deltas: raw.iter().map(|delta| by(delta).map(clip)).collect(), signal, noise, slow }
    }

    /// Whether changes go on for longer than the interval, as those of a slowly swinging queue do.
    fn lasts(&self) -> bool {
        self.slow * 100 >= self.signal * SLOW_PERCENT
    }

    /// Returns the changes that both paths have at the same time.
    fn pairs(&self, other: &Self) -> Vec<(i64, i64)> {
        self.newest_pairs(other, self.deltas.len())
    }

    /// Returns the changes that both paths have at the same time, among the newest ones of this number.
    fn newest_pairs(&self, other: &Self, newest: usize) -> Vec<(i64, i64)> {
        let both = self.deltas.iter().zip(&other.deltas).take(newest);
        both.filter_map(|(a, b)| Some(((*a)?, (*b)?))).collect()
    }
}

fn mean_square(of: impl Iterator<Item = u64>) -> u128 {
    let (sum, count) = of.fold((0, 0), |(sum, count), x| (sum + u128::from(x).pow(2), count + 1));
    sum / u128::max(count, 1)
}

/// Whether the coefficient is above zero by this many standard deviations. The standard deviation is 1/√n if
/// the changes are independent.
fn exceeds_chance(pairs: &[(i64, i64)], deviations: i64) -> bool {
    let most = 10_000 * deviations * deviations;
    percent(pairs).is_some_and(|r| r > 0 && r * r * pairs.len() as i64 >= most)
}

/// Returns Pearson's coefficient in percent; `None` if there are too few pairs.
fn percent(pairs: &[(i64, i64)]) -> Option<i64> {
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
    // If one delay never changes, the coefficient is zero.
    Some((i128::from(xy) * 100).checked_div(whole).unwrap_or(0) as i64)
}
