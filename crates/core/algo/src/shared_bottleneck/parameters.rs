//! The parameters of the detection: RFC 8382's, and ours.

use crate::Span;

/// The base time interval T (section 2.2; so are the following).
pub const T: Span = Span::from_millis(350);
/// Intervals that oscillation and loss are counted over.
pub const N: usize = 50;
/// Intervals that mean, skewness and variability are taken over.
pub const M: usize = 30;
/// Of these, how many of the newest have full weight (section 4.1).
pub const F: usize = 20;
/// c_s: skewness below which a path passes a bottleneck.
pub const C_S_PPM: i64 = 100_000;
/// c_h: the same for a path that did in the interval before.
pub const C_H_PPM: i64 = 300_000;
/// p_f: difference in frequency between groups.
pub const P_F_PPM: i64 = 100_000;
/// p_mad: difference in variability between groups, relative to the higher one.
pub const P_MAD_PERCENT: i64 = 10;
/// p_s: difference in skewness between groups.
pub const P_S_PPM: i64 = 150_000;
/// p_d: difference in loss between groups, relative to the higher one.
pub const P_D_PERCENT: i64 = 10;
/// p_l: loss above which a path passes a bottleneck and loss is a measure to compare.
pub const P_L_PPM: i64 = 100_000;
/// p_v: how far from the mean a crossing is significant, relative to the variability.
pub const P_V_PERCENT: i64 = 70;

/// Intervals in a row that have to say so before paths come apart. Ours.
pub const HOLD: u32 = 10;
/// Samples in [`M`] intervals below which a path is unknown. Ours.
pub const SAMPLES_MIN: u32 = 60;
/// Intervals with samples, of [`M`], below which a path is unknown. Ours.
pub const FILLED_MIN: u32 = F as u32;
/// Intervals with samples, of [`M`], below which the delays of a path join it with no other uplink:
/// [`RECENT`], and some for a slow start before them. Ours.
pub const SETTLED_MIN: u32 = 15;
/// Parts of an interval T; two, four, … of them are the other scales that delays are correlated at. Ours, as
/// is all that follows.
pub const PARTS: usize = 32;
/// Parts, or times so many parts, whose mean delays are remembered; of whole intervals it is
/// [`INTERVALS_MAX`].
pub const PARTS_MAX: usize = 200;
/// Whole intervals that are remembered for this.
pub const INTERVALS_MAX: usize = 2 * N;
/// Correlation of the changes of two paths' mean delays from which on they are together, percent.
pub const CORRELATED_PERCENT: i64 = 50;
/// The same where a finer scale has them apart.
pub const STRONGLY_CORRELATED_PERCENT: i64 = 70;
/// The same below which they are apart.
pub const UNCORRELATED_PERCENT: i64 = 35;
/// The newest intervals, and the correlation in them alone of quarters of an interval, percent, that joins
/// paths whatever was before.
pub const RECENT: usize = 10;
/// See [`RECENT`].
pub const RECENT_PERCENT: i64 = 80;
/// Changes that both paths must have for a correlation to join them.
pub const PAIRS_MIN: usize = 12;
/// Changes that both paths must have for a correlation to part them.
pub const APART_PAIRS_MIN: usize = 60;
/// Changes count as at most so many times the median one.
pub const CLIP: u64 = 3;
/// How large the square of the changes of whole intervals must be, beside that of their noise, for paths to
/// be unlike.
pub const NOISE_FACTOR: u128 = 4;
/// The same for parts of an interval, which have fewer samples.
pub const PART_NOISE_FACTOR: u128 = 16;
/// How large the square of the changes must be over twice the time, of what it is over the time, for a scale
/// to show a queue: 50 is what chance makes of it.
pub const SLOW_PERCENT: u128 = 55;
/// Changes of less than this part of the smallest round trip show no queue.
pub const SMALL_PART: u64 = 64;
/// A mean delay this part of the smallest round trip above the smallest delay, or less, is no queue.
pub const QUIET_PART: u64 = 32;
/// Nor is one above this, however long the round trip.
pub const QUIET_MAX: Span = Span::from_millis(3);
/// The newest intervals, and how many of them have to be without a queue, for a path to be quiet.
pub const QUIET_OF: usize = 10;
/// See [`QUIET_OF`].
pub const QUIET_MIN: usize = 8;
/// Deviations beyond chance by which the losses of two quiet paths are doubted to be of their own.
pub const LIKE_DEVIATIONS: i64 = 3;
/// Deviations beyond chance by which the changes of two paths' mean delays must go together for these to join
/// two uplinks: it is asked many times a minute, and of the noise of idle links too.
pub const CLEAR_DEVIATIONS: i64 = 5;
/// Intervals with losses and without a queue, of [`M`], that each of two paths must have for its losses to be
/// evidence.
pub const QUIET_LOSSES_MIN: usize = 2;
/// Parts of an interval, by which it is asked whether two paths lost packets at the same time.
pub const LOSS_SLOTS: usize = 4;
/// The most paths of a detector.
pub const PATHS_MAX: usize = 256;
/// Samples of one interval that are looked at; the rest is ignored.
pub const SAMPLES_MAX: u32 = 1 << 16;
/// Delays further than this from a path's first one count as this far.
pub const DELAY_MAX: Span = Span::from_secs(60);
