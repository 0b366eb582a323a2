//! The delays and losses of one path: the summary statistics of RFC 8382 sections 3.2 and 4.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::parameters::{
    C_H_PPM, C_S_PPM, DELAY_MAX, F, INTERVALS_MAX, LOSS_SLOTS, M, N, P_L_PPM, P_V_PERCENT, PARTS, PARTS_MAX,
    QUIET_MAX, QUIET_PART, SAMPLES_MAX,
};
use crate::Span;

/// The fraction bits of means, which are kept in 2⁻⁸ ns, finer than the samples: rounding would bias the
/// skewness (section 3.2.2).
const FRACTION: u32 = 8;
const MILLION: i64 = 1_000_000;
/// The scales that are finer than an interval, in parts of an interval: T/32 (11 ms) to T/2 (175 ms).
pub(super) const SCALES: [usize; 5] = [PARTS / 32, PARTS / 16, PARTS / 8, PARTS / 4, PARTS / 2];

/// The estimates for one path at the end of the last interval, in parts per million and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SummaryStats {
    /// Delay samples in the last [`M`] intervals.
    pub samples: u32,
    /// How many of these intervals had a sample.
    pub filled: u32,
    /// skew_est, −10⁶ to 10⁶: positive if most samples lie below the mean, as they do where queues are mostly
    /// empty (sections 3.2.2, 4.1.1).
    pub skew_ppm: i64,
    /// var_est: the mean absolute deviation of the delay (sections 3.2.3, 4.1.2, 4.2). Intervals in which the
    /// path was not congested do not count; without any other it is zero.
    pub var_ns: u64,
    /// freq_est: the significant crossings of the mean per interval (sections 3.2.4, 4.2).
    pub freq_ppm: i64,
    /// pkt_loss (section 3.2.5).
    pub loss_ppm: i64,
    /// PB: whether the path passes a bottleneck, by the first test of section 3.3.1.
    pub congested: bool,
}

/// The statistics of one interval T.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    samples: u32,
    /// E_T(OWD) in 2⁻⁸ ns, if there were samples.
    mean: i64,
    /// skew_base_T, and the number of samples in it.
    skew: i64,
    skewed: i64,
    /// var_base_T in ns, and the number of samples in it.
    deviation: i64,
    deviated: i64,
    /// Whether the path was not congested, so that the deviation is noise ("NaN" of section 4.2).
    noise: bool,
    /// The sum of the squared differences between one sample and the next, in ns².
    rough: u128,
    crossed: bool,
    delivered: u64,
    lost: u64,
    /// The smallest sample in ns, if there were samples.
    low: i64,
    /// In which of the [`LOSS_SLOTS`] parts of the interval packets were lost.
    lost_in: [bool; LOSS_SLOTS],
}

/// One of the [`PARTS`] of an interval, or several of them joined.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    samples: u32,
    /// The sum of the samples, in ns.
    sum: i64,
}

impl Part {
    fn of(parts: &[Self]) -> Self {
        let add =
            |all: Self, part: &Self| Self { samples: all.samples + part.samples, sum: all.sum + part.sum };
        parts.iter().fold(Self::default(), add)
    }
}

/// A change of the mean delay from one interval, or part of one, to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct DelayDelta {
    pub(super) by_ns: i64,
    /// The square of the change that chance would make of independent samples.
    pub(super) noise_ns2: u128,
}

/// The statistics of one path.
#[derive(Clone, Debug, Default)]
pub(super) struct PathStats {
    /// The last [`INTERVALS_MAX`] intervals, newest first.
    closed: VecDeque<Interval>,
    /// The parts of the last intervals at each of [`SCALES`], the last [`PARTS_MAX`] of them, newest first.
    parts: [VecDeque<Part>; SCALES.len()],
    /// The running interval; its mean is the sum of its samples, in ns.
    open: Interval,
    open_parts: [Part; PARTS],
    /// The first delay, which is subtracted from every delay: offsets do not matter, small numbers do.
    base: Option<Span>,
    /// The last sample, in ns, and the part of the running interval in which it came.
    last: i64,
    last_part: usize,
    /// The smallest sample since the path was added or reset, in ns; the first sample is 0.
    lowest: i64,
    /// The smallest round-trip time; zero if it is unknown.
    rtt_min: Span,
    /// mean_delay = E_M(E_T(OWD)) in 2⁻⁸ ns, without the running interval (section 3.2.1).
    mean: Option<i64>,
    /// E_T(OWD) of the last interval that had samples, in 2⁻⁸ ns.
    last_mean: Option<i64>,
    /// Whether the last significant excursion of E_T(OWD) was above the mean.
    above: Option<bool>,
    /// Intervals since the path was added or reset, up to [`N`].
    age: u32,
    summary: SummaryStats,
}

impl PathStats {
    /// Records a sample in part `part` of the running interval.
    pub(super) fn sample(&mut self, part: usize, delay: Span) {
        if self.open.samples >= SAMPLES_MAX {
            return;
        }
        let base = *self.base.get_or_insert(delay);
        let most = DELAY_MAX.as_nanos();
        let above = (delay - base).as_nanos().min(most) as i64;
        let below = (base - delay).as_nanos().min(most) as i64;
        let x = above - below;
        let open = &mut self.open;
        // The first sample of all is the base, so it differs by zero.
        open.rough += u128::from(x.abs_diff(self.last)).pow(2);
        (self.last, self.last_part) = (x, part);
        open.low = if open.samples == 0 { x } else { open.low.min(x) };
        self.lowest = self.lowest.min(x);
        open.samples += 1;
        open.mean += x;
        self.open_parts[part].samples += 1;
        self.open_parts[part].sum += x;
        if let Some(mean) = self.mean {
            // Section 3.2.2.
            open.skew += i64::from(x << FRACTION < mean) - i64::from(x << FRACTION > mean);
            open.skewed += 1;
        }
        if let Some(mean) = self.last_mean {
            // Section 3.2.3.
            open.deviation += ((x << FRACTION) - mean).abs() >> FRACTION;
            open.deviated += 1;
        }
    }

    pub(super) const fn delivered(&mut self, packets: u32) {
        self.open.delivered += packets as u64;
    }

    pub(super) const fn lost(&mut self, packets: u32) {
        self.open.lost += packets as u64;
        // Losses are found when a packet comes, so at about the time of the last sample.
        self.open.lost_in[self.last_part * LOSS_SLOTS / PARTS] |= packets > 0;
    }

    pub(super) const fn rtt_min(&self) -> Span {
        self.rtt_min
    }

    pub(super) const fn set_rtt_min(&mut self, rtt_min: Span) {
        self.rtt_min = rtt_min;
    }

    /// Ends the running interval. Returns the new estimates.
    pub(super) fn close(&mut self) -> SummaryStats {
        let mut new = core::mem::take(&mut self.open);
        self.last_part = 0;
        if new.samples > 0 {
            new.mean = (new.mean << FRACTION).div_euclid(i64::from(new.samples));
            self.last_mean = Some(new.mean);
        }
        self.age = self.age.saturating_add(1).min(N as u32);
        self.closed.push_front(new);
        self.closed.truncate(INTERVALS_MAX);
        let parts = core::mem::take(&mut self.open_parts);
        for (closed, width) in self.parts.iter_mut().zip(SCALES) {
            parts.chunks(width).for_each(|some| closed.push_front(Part::of(some)));
            closed.truncate(PARTS_MAX);
        }
        let filled = self.closed.iter().take(M).filter(|i| i.samples > 0);
        let (count, sum) = filled.fold((0, 0), |(n, sum), i| (n + 1, sum + i.mean));
        self.mean = (count > 0).then(|| sum / i64::from(count));

        let loss = self.lately().fold((0, 0), |(lost, all), i| (lost + i.lost, all + i.lost + i.delivered));
        let loss_ppm = ppm(loss.0 as i64, loss.1 as i64);
        let skew_ppm = self.weighted(|i| (i.skew, i.skewed), MILLION);
        // Section 3.3.1, step 1.
        let congested = count > 0
            && (skew_ppm < C_S_PPM || (skew_ppm < C_H_PPM && self.summary.congested) || loss_ppm > P_L_PPM);
        if !congested {
            // Section 4.2.
            if let Some(newest) = self.closed.front_mut() {
                newest.noise = true;
            }
        }
        let var_ns = self.weighted(|i| if i.noise { (0, 0) } else { (i.deviation, i.deviated) }, 1);
        self.cross(congested, var_ns);
        let crossings = self.lately().filter(|i| i.crossed).count();
        self.summary = SummaryStats {
            samples: self.closed.iter().take(M).map(|i| i.samples).sum(),
            filled: count,
            skew_ppm,
            var_ns: var_ns as u64,
            freq_ppm: ppm(crossings as i64, N as i64),
            loss_ppm,
            congested,
        };
        self.summary
    }

    /// Records whether the mean of the newest interval has crossed the long-term mean, by p_v times var_est,
    /// since it last did so on the other side (section 3.2.4).
    fn cross(&mut self, congested: bool, var_ns: i64) {
        let (Some(mean), Some(newest)) = (self.mean, self.closed.front_mut()) else { return };
        if newest.samples == 0 || !congested {
            return;
        }
        let far = (var_ns << FRACTION) / 100 * P_V_PERCENT;
        let above = newest.mean > mean + far;
        if above || newest.mean < mean - far {
            newest.crossed = self.above.is_some_and(|before| before != above);
            self.above = Some(above);
        }
    }

    /// Returns the weighted mean over M intervals, times `scale`. The newest F intervals have the same
    /// weight; the others have the less weight the older they are (sections 4.1.1 and 4.1.2).
    fn weighted(&self, of: impl Fn(&Interval) -> (i64, i64), scale: i64) -> i64 {
        let weight = |i: usize| (M - i.max(F - 1)) as i64;
        let add = |(sum, count), (i, interval)| {
            let (s, n) = of(interval);
            (sum + weight(i) * s, count + weight(i) * n)
        };
        let (sum, count) = self.closed.iter().take(M).enumerate().fold((0, 0), add);
        if count == 0 { 0 } else { (i128::from(sum) * i128::from(scale) / i128::from(count)) as i64 }
    }

    /// Iterates over the last [`N`] intervals.
    fn lately(&self) -> impl Iterator<Item = &Interval> {
        self.closed.iter().take(N)
    }

    /// Returns the changes of the mean delay at one of [`SCALES`], or from interval to interval if `scale` is
    /// beyond them, newest first; `None` where one of two neighbours had no samples.
    pub(super) fn deltas(&self, scale: usize) -> Vec<Option<DelayDelta>> {
        // The variance of independent samples is half the mean square of their successive differences, which
        // the slow movement of a queue hardly affects. The variance of their mean is that, divided by the
        // number of samples.
        let all =
            self.closed.iter().fold((0, 0), |(rough, n), i| (rough + i.rough, n + u128::from(i.samples)));
        let variance = all.0 / (2 * all.1.max(1));
        // This returns the mean, and the variance of the mean.
        let of = |samples: u32, mean: i64| (samples > 0).then(|| (mean, variance / u128::from(samples)));
        let means: Vec<_> = match self.parts.get(scale) {
            None => self.closed.iter().map(|i| of(i.samples, i.mean >> FRACTION)).collect(),
            Some(parts) => {
                let mean = |part: &Part| part.sum.checked_div(i64::from(part.samples)).unwrap_or(0);
                parts.iter().map(|part| of(part.samples, mean(part))).collect()
            }
        };
        let delta = |pair: &[Option<(i64, u128)>]| {
            let (new, old) = (pair[0]?, pair[1]?);
            Some(DelayDelta { by_ns: new.0 - old.0, noise_ns2: new.1 + old.1 })
        };
        means.windows(2).map(delta).collect()
    }

    /// Returns for each interval, newest first, whether it was without a queue, as far as its delays tell.
    pub(super) fn quiet(&self) -> Vec<bool> {
        let sampled = self.closed.iter().filter(|i| i.samples > 0);
        let floor = sampled.map(|i| i.low).min().unwrap_or(0);
        let most = self.quiet_most();
        self.closed.iter().map(|i| i.samples > 0 && (i.mean >> FRACTION) - floor < most).collect()
    }

    /// Iterates over the intervals, newest first: the mean delay above the smallest that the path ever had,
    /// in ns; `None` if the interval has no samples.
    pub(super) fn queues(&self) -> impl Iterator<Item = Option<i64>> {
        self.closed.iter().map(|i| (i.samples > 0).then(|| (i.mean >> FRACTION) - self.lowest))
    }

    /// Returns the longest mean queue that still counts as none, in ns.
    pub(super) fn quiet_most(&self) -> i64 {
        self.rtt_min.over(QUIET_PART).min(QUIET_MAX).as_nanos() as i64
    }

    /// Iterates over the intervals, newest first: in which parts of each packets were lost.
    pub(super) fn lost_in(&self) -> impl Iterator<Item = &[bool; LOSS_SLOTS]> {
        self.closed.iter().map(|i| &i.lost_in)
    }

    /// Whether the path has carried nothing for [`M`] intervals.
    pub(super) const fn is_absent(&self) -> bool {
        self.summary.samples == 0 && self.age >= M as u32
    }

    pub(super) const fn summary(&self) -> SummaryStats {
        self.summary
    }
}

fn ppm(part: i64, whole: i64) -> i64 {
    (i128::from(part) * i128::from(MILLION)).checked_div(i128::from(whole)).unwrap_or(0) as i64
}
