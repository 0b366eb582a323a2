//! The parameters of the detection: those of RFC 8382, and those that it does not have.

use crate::Span;

/// The base time interval T (section 2.2; so are the following).
pub const T: Span = Span::from_millis(350);
/// The number of intervals over which oscillation and loss are counted.
pub const N: usize = 50;
/// The number of intervals over which mean, skewness and variability are taken.
pub const M: usize = 30;
/// The number of the newest of these intervals that have full weight (section 4.1).
pub const F: usize = 20;
/// c_s: the skewness below which a path passes a bottleneck.
pub const C_S_PPM: i64 = 100_000;
/// c_h: the skewness below which a path passes a bottleneck if it did so in the interval before.
pub const C_H_PPM: i64 = 300_000;
/// p_f: the difference in frequency that separates groups.
pub const P_F_PPM: i64 = 100_000;
/// p_mad: the difference in variability that separates groups, relative to the higher one.
pub const P_MAD_PERCENT: i64 = 10;
/// p_s: the difference in skewness that separates groups.
pub const P_S_PPM: i64 = 150_000;
/// p_d: the difference in loss that separates groups, relative to the higher one.
pub const P_D_PERCENT: i64 = 10;
/// p_l: the loss above which a path passes a bottleneck, and above which losses are compared.
pub const P_L_PPM: i64 = 100_000;
/// p_v: how far from the mean a crossing is significant, relative to the variability.
pub const P_V_PERCENT: i64 = 70;

/// The intervals in a row that must have paths apart before they come apart. Not in the RFC.
pub const HOLD: u32 = 10;
/// The samples in [`M`] intervals below which too little is known of a path. Not in the RFC.
pub const SAMPLES_MIN: u32 = 60;
/// The intervals with samples, of [`M`], below which too little is known of a path. Not in the RFC.
pub const FILLED_MIN: u32 = F as u32;
/// The intervals with samples, of [`M`], below which the delays of a path join it with no other uplink:
/// [`RECENT`], and some for a slow start before them. Not in the RFC.
pub const SETTLED_MIN: u32 = 15;
/// The number of parts of an interval T. Two, four, … parts together are the other scales at which delays are
/// correlated. Like all that follow, this parameter is not in the RFC.
pub const PARTS: usize = 32;
/// The number of mean delays that are remembered at each scale below an interval. Of whole intervals,
/// [`INTERVALS_MAX`] are remembered.
pub const PARTS_MAX: usize = 200;
/// The number of whole intervals that are remembered for correlations.
pub const INTERVALS_MAX: usize = 2 * N;
/// The correlation of the changes of two paths' mean delays from which on they are together, in percent.
pub const CORRELATED_PERCENT: i64 = 50;
/// The correlation from which on paths are together although a finer scale has them apart, in percent.
pub const STRONGLY_CORRELATED_PERCENT: i64 = 70;
/// The correlation below which paths are apart, in percent.
pub const UNCORRELATED_PERCENT: i64 = 35;
/// The number of newest intervals that are also compared by themselves, in quarters of an interval. A
/// correlation of [`RECENT_PERCENT`] in them joins paths, whatever was before.
pub const RECENT: usize = 10;
/// The correlation in the [`RECENT`] newest intervals that joins paths, in percent.
pub const RECENT_PERCENT: i64 = 80;
/// The number of changes that both paths must have for a correlation to join them.
pub const PAIRS_MIN: usize = 12;
/// The number of changes that both paths must have for a correlation to part them.
pub const APART_PAIRS_MIN: usize = 60;
/// A change counts as at most this many times the median one.
pub const CLIP: u64 = 3;
/// The mean square of the changes of whole intervals, as a multiple of that of their noise, from which on
/// paths can be unlike.
pub const NOISE_FACTOR: u128 = 4;
/// The mean square of the changes of parts of an interval, as a multiple of that of their noise, from which
/// on paths can be unlike. Parts have fewer samples than whole intervals.
pub const PART_NOISE_FACTOR: u128 = 16;
/// The mean square of changes over twice the time, in percent of that over the time, from which on a scale
/// shows a queue: chance makes 50.
pub const SLOW_PERCENT: u128 = 55;
/// Changes of less than one part in this many of the smallest round trip show no queue.
pub const SMALL_PART: u64 = 64;
/// A mean delay that exceeds the smallest delay by less than one part in this many of the smallest round trip
/// is no queue.
pub const QUIET_PART: u64 = 32;
/// A mean delay that exceeds the smallest delay by this is a queue, however long the round trip.
pub const QUIET_MAX: Span = Span::from_millis(3);
/// The number of newest intervals of which [`QUIET_MIN`] must be without a queue for a path to be quiet.
pub const QUIET_OF: usize = 10;
/// How many of the [`QUIET_OF`] newest intervals must be without a queue for a path to be quiet.
pub const QUIET_MIN: usize = 8;
/// The standard deviations beyond chance by which the delays of two quiet paths must go together for separate
/// losses not to part them.
pub const LIKE_DEVIATIONS: i64 = 3;
/// The standard deviations beyond chance by which the changes of two paths' mean delays must go together to
/// join two uplinks. They are many because the test is made many times a minute, and of the noise of idle
/// links, too.
pub const CLEAR_DEVIATIONS: i64 = 5;
/// The number of intervals with losses and without a queue, of [`M`], that each of two paths must have for
/// its losses to be evidence.
pub const QUIET_LOSSES_MIN: usize = 2;
/// The part of the longer of two queues by which two paths' queues may differ in an interval, if one queue
/// makes both.
pub const SAME_QUEUE_PART: i64 = 4;
/// How many of the [`RECENT`] newest intervals may show two paths' queues as different before a join of two
/// uplinks is refused.
pub const OTHER_QUEUE_MAX: usize = 1;
/// The number of parts of an interval for which it is recorded whether packets were lost, so that losses of
/// two paths can be compared.
pub const LOSS_SLOTS: usize = 4;
/// The most paths of a detector.
pub const PATHS_MAX: usize = 256;
/// The most samples of one interval that are used; further ones are ignored.
pub const SAMPLES_MAX: u32 = 1 << 16;
/// The largest difference from a path's first delay; larger ones count as this one.
pub const DELAY_MAX: Span = Span::from_secs(60);
