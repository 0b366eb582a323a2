//! What one path's delays and losses look like: the summary statistics of RFC 8382 sections 3.2 and 4.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::parameters::{
    C_H_PPM, C_S_PPM, DELAY_MAX, F, INTERVALS_MAX, LOSS_SLOTS, M, N, P_L_PPM, P_V_PERCENT, PARTS, PARTS_MAX,
    QUIET_MAX, QUIET_PART, SAMPLES_MAX,
};
use crate::Span;

/// Means are kept in 2⁻⁸ ns, finer than the samples, or rounding would bias the skewness (section 3.2.2).
const FRACTION: u32 = 8;
const MILLION: i64 = 1_000_000;
/// So many parts of an interval each: T/32 (11 ms) to T/2 (175 ms).
pub(super) const SCALES: [usize; 5] = [PARTS / 32, PARTS / 16, PARTS / 8, PARTS / 4, PARTS / 2];

/// The estimates for one path, as of the end of the last interval; parts per million, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SummaryStats {
    /// Delay samples in the last [`M`] intervals.
    pub samples: u32,
    /// Of these intervals, how many had a sample.
    pub filled: u32,
    /// skew_est, −10⁶ to 10⁶: positive if most samples lie below the mean, as they do where queues are mostly
    /// empty (sections 3.2.2, 4.1.1).
    pub skew_ppm: i64,
    /// var_est: mean absolute deviation of the delay (sections 3.2.3, 4.1.2, 4.2); zero while the path is not
    /// congested.
    pub var_ns: u64,
    /// freq_est: significant crossings of the mean an interval (sections 3.2.4, 4.2).
    pub freq_ppm: i64,
    /// pkt_loss (section 3.2.5).
    pub loss_ppm: i64,
    /// PB: whether it passes a bottleneck, by the first test of section 3.3.1.
    pub congested: bool,
}

/// One interval T.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    samples: u32,
    /// E_T(OWD), 2⁻⁸ ns, if there were samples.
    mean: i64,
    /// skew_base_T and the samples in it.
    skew: i64,
    skewed: i64,
    /// var_base_T, ns, and the samples in it.
    deviation: i64,
    deviated: i64,
    /// The path was not congested, so that is noise ("NaN" of section 4.2).
    noise: bool,
    /// Squares of the differences between one sample and the next, ns².
    rough: u128,
    crossed: bool,
    delivered: u64,
    lost: u64,
    /// The smallest sample, ns, if there were any.
    low: i64,
    /// In which of its [`LOSS_SLOTS`] packets were lost.
    lost_in: [bool; LOSS_SLOTS],
}

/// One of the [`PARTS`] of an interval, or some of them.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    samples: u32,
    /// Of the samples, ns.
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
    /// The square of what chance would make of it, had the samples nothing to do with each other.
    pub(super) noise_ns2: u128,
}

/// What is known of one path.
#[derive(Clone, Debug, Default)]
pub(super) struct PathStats {
    /// The last [`INTERVALS_MAX`] intervals, newest first.
    closed: VecDeque<Interval>,
    /// What the last intervals were in parts: the last [`PARTS_MAX`] of each of [`SCALES`], newest first.
    parts: [VecDeque<Part>; SCALES.len()],
    /// The one that is running; its mean is the sum of its samples, ns.
    open: Interval,
    open_parts: [Part; PARTS],
    /// What is subtracted from every delay: the first one. Offsets do not matter, small numbers do.
    base: Option<Span>,
    /// The last sample, ns, and in which part of the running interval it was.
    last: i64,
    last_part: usize,
    /// The smallest round trip; zero if nobody told.
    rtt_min: Span,
    /// mean_delay = E_M(E_T(OWD)), 2⁻⁸ ns, without the running interval (section 3.2.1).
    mean: Option<i64>,
    /// E_T(OWD) of the last interval that had samples.
    last_mean: Option<i64>,
    /// Whether the last significant excursion of E_T(OWD) was above the mean.
    above: Option<bool>,
    /// Intervals since the path was added or reset, up to [`N`].
    age: u32,
    summary: SummaryStats,
}

impl PathStats {
    /// A sample in part `part` of the running interval.
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
        // The first of all differs from nothing: its delay is the base.
        open.rough += u128::from(x.abs_diff(self.last)).pow(2);
        (self.last, self.last_part) = (x, part);
        open.low = if open.samples == 0 { x } else { open.low.min(x) };
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
        // Losses are found when a packet comes, so about when the last one did.
        self.open.lost_in[self.last_part * LOSS_SLOTS / PARTS] |= packets > 0;
    }

    pub(super) const fn rtt_min(&self) -> Span {
        self.rtt_min
    }

    pub(super) const fn set_rtt_min(&mut self, rtt_min: Span) {
        self.rtt_min = rtt_min;
    }

    /// Ends the running interval.
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

    /// Section 3.2.4: notes whether the mean of the newest interval has crossed the long-term mean, by p_v
    /// times var_est, since it last did so on the other side.
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

    /// Sections 4.1.1 and 4.1.2: the mean over M intervals, of which the newest F have the same weight and
    /// the others the less the older they are; times `scale`.
    fn weighted(&self, of: impl Fn(&Interval) -> (i64, i64), scale: i64) -> i64 {
        let weight = |i: usize| (M - i.max(F - 1)) as i64;
        let add = |(sum, count), (i, interval)| {
            let (s, n) = of(interval);
            (sum + weight(i) * s, count + weight(i) * n)
        };
        let (sum, count) = self.closed.iter().take(M).enumerate().fold((0, 0), add);
        if count == 0 { 0 } else { (i128::from(sum) * i128::from(scale) / i128::from(count)) as i64 }
    }

    /// The last [`N`] intervals.
    fn lately(&self) -> impl Iterator<Item = &Interval> {
        self.closed.iter().take(N)
    }

    /// How the mean delay changed at one of [`SCALES`], or from interval to interval where there is no such
    /// one, newest first; `None` where one of two neighbours had no samples.
    pub(super) fn deltas(&self, scale: usize) -> Vec<Option<DelayDelta>> {
        // The variance of independent samples is half the mean square of their differences, which hardly sees
        // the slow movement of a queue; that of their mean is as many times less as there are samples.
        let all =
            self.closed.iter().fold((0, 0), |(rough, n), i| (rough + i.rough, n + u128::from(i.samples)));
        let variance = all.0 / (2 * all.1.max(1));
        // (mean, variance of the mean)
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

    /// Of each interval, newest first, whether it was without a queue, as far as its delays tell.
    pub(super) fn quiet(&self) -> Vec<bool> {
        let sampled = || self.closed.iter().filter(|i| i.samples > 0);
        let floor = sampled().map(|i| i.low).min().unwrap_or(0);
        let most = self.rtt_min.over(QUIET_PART).min(QUIET_MAX).as_nanos() as i64;
        self.closed.iter().map(|i| i.samples > 0 && (i.mean >> FRACTION) - floor < most).collect()
    }

    /// Of each interval, newest first, in which of its parts packets were lost.
    pub(super) fn lost_in(&self) -> impl Iterator<Item = &[bool; LOSS_SLOTS]> {
        self.closed.iter().map(|i| &i.lost_in)
    }

    /// Whether it carries nothing, and has carried nothing for [`M`] intervals.
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
