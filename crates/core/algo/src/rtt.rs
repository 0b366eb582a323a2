//! The round-trip time of one path, and the timeouts that follow from it (RFC 6298; RFC 8985 section 7.2).
//!
//! **Several samples in a round trip.** RFC 6298's gains suit one sample per RTT. A caller that has a sample
//! from every packet should give one per batch; more would only shorten the memory (RFC 7323 appendix G).

use crate::{Span, Time};

/// The shortest retransmission timeout. RFC 6298 (2.4) says 1 s; Linux has long used 200 ms, and so do we.
pub const RTO_MIN: Span = Span::from_millis(200);
/// The longest retransmission timeout, backed off or not. RFC 6298 (2.5) wants a maximum to be at least 60 s.
/// Here a path that has come back should be found sooner, and one packet each 10 s does no harm.
pub const RTO_MAX: Span = Span::from_secs(10);
/// The retransmission timeout before the first sample, RFC 6298 (2.1).
pub const RTO_INITIAL: Span = Span::from_secs(1);
/// The shortest probe timeout: below it timers and batching at the far end would cause needless probes.
pub const PTO_MIN: Span = Span::from_millis(10);
/// The probe timeout before the first sample, RFC 8985 section 7.2.
pub const PTO_INITIAL: Span = Span::from_secs(1);
/// Clock granularity G of RFC 6298 (2.3).
pub const GRANULARITY: Span = Span::from_millis(1);
/// The least time for which the minimum RTT is remembered. It is remembered at most twice as long.
pub const MIN_RTT_WINDOW: Span = Span::from_secs(60);

/// Backing off more often than this changes nothing: [`RTO_MIN`] · 2⁶ > [`RTO_MAX`].
const BACKOFF_MAX: u32 = 6;

/// Round-trip time estimator and retransmission timer of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RttEstimator {
    srtt: Span,
    rttvar: Span,
    latest: Span,
    /// The minimum in the window that began at `window_start`, and in the one before it.
    min: Span,
    min_before: Span,
    window_start: Time,
    backoff: u32,
}

impl Default for RttEstimator {
    fn default() -> Self {
        Self::new()
    }
}

impl RttEstimator {
    /// Creates an estimator without a sample.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            srtt: Span::ZERO,
            rttvar: Span::ZERO,
            latest: Span::ZERO,
            min: Span::MAX,
            min_before: Span::MAX,
            window_start: Time::ZERO,
            backoff: 0,
        }
    }

    /// Records a measured round trip. Ends a backoff (RFC 6298 section 5).
    ///
    /// **Karn's rule** (RFC 6298 section 3): never give a sample that could belong to either of two requests.
    /// A transport whose requests each carry their own tag, echoed in the reply, has no such samples: a reply
    /// to a request that was asked again names the request it answers.
    ///
    /// A sample of zero counts as one nanosecond, so that the smoothed RTT is zero only before the first
    /// sample.
    pub fn sample(&mut self, now: Time, rtt: Span) {
        let rtt = rtt.max(Span::from_nanos(1));
        if self.has_sample() {
            // (2.3), RTTVAR first. SRTT is at least one nanosecond, for the same reason as the sample.
            let off = if rtt > self.srtt { rtt - self.srtt } else { self.srtt - rtt };
            self.rttvar = self.rttvar - self.rttvar.over(4) + off.over(4);
            self.srtt = (self.srtt - self.srtt.over(8) + rtt.over(8)).max(Span::from_nanos(1));
        } else {
            // (2.2)
            self.srtt = rtt;
            self.rttvar = rtt.over(2);
            self.window_start = now;
        }
        self.latest = rtt;
        self.backoff = 0;
        if now.since(self.window_start) >= MIN_RTT_WINDOW {
            self.min_before = self.min;
            self.min = Span::MAX;
            self.window_start = now;
        }
        self.min = self.min.min(rtt);
    }

    /// Whether there has been a sample.
    #[must_use]
    pub const fn has_sample(&self) -> bool {
        self.srtt.as_nanos() != 0
    }
    /// Returns the smoothed RTT; zero before the first sample.
    #[must_use]
    pub const fn srtt(&self) -> Span {
        self.srtt
    }
    /// Returns the mean deviation; zero before the first sample.
    #[must_use]
    pub const fn rttvar(&self) -> Span {
        self.rttvar
    }
    /// Returns the last sample; zero before the first.
    #[must_use]
    pub const fn latest(&self) -> Span {
        self.latest
    }
    /// Returns the smallest RTT of the last [`MIN_RTT_WINDOW`] or so; zero before the first sample.
    #[must_use]
    pub fn min(&self) -> Span {
        if self.has_sample() { self.min.min(self.min_before) } else { Span::ZERO }
    }

    /// Returns the retransmission timeout, backed off: between [`RTO_MIN`] and [`RTO_MAX`].
    #[must_use]
    pub fn rto(&self) -> Span {
        let rto =
            if self.has_sample() { self.srtt + self.rttvar.times(4).max(GRANULARITY) } else { RTO_INITIAL };
        rto.max(RTO_MIN).times(1 << self.backoff).min(RTO_MAX)
    }

    /// Doubles the timeout until the next sample, because the timer has expired (RFC 6298 (5.5)).
    pub fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
    }

    /// Returns the probe timeout (tail-loss probe, RFC 8985 section 7.2): how long after the last request or
    /// reply to probe, if anything is outstanding. It is twice the smoothed RTT, at least [`PTO_MIN`] and
    /// never longer than the RTO.
    ///
    /// RFC 8985 adds the longest delayed acknowledgement when a single packet is outstanding. Sources answer
    /// each request at once, so there is nothing to add.
    #[must_use]
    pub fn probe_timeout(&self) -> Span {
        let pto = if self.has_sample() { self.srtt.times(2).max(PTO_MIN) } else { PTO_INITIAL };
        pto.min(self.rto())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Span = Span::from_millis;

    fn after(samples: &[u64]) -> RttEstimator {
        let mut rtt = RttEstimator::new();
        for (i, &s) in samples.iter().enumerate() {
            rtt.sample(Time::ZERO + MS(i as u64 * 100), MS(s));
        }
        rtt
    }

    #[test]
    fn nothing_known() {
        let rtt = RttEstimator::new();
        assert!(!rtt.has_sample());
        assert_eq!((rtt.srtt(), rtt.min(), rtt.latest()), (Span::ZERO, Span::ZERO, Span::ZERO));
        assert_eq!((rtt.rto(), rtt.probe_timeout()), (RTO_INITIAL, PTO_INITIAL));
    }

    #[test]
    fn rfc_6298_by_hand() {
        let rtt = after(&[100]);
        assert_eq!((rtt.srtt(), rtt.rttvar(), rtt.rto()), (MS(100), MS(50), MS(300)));
        // RTTVAR = 3/4 · 50 + 1/4 · |100 − 180| = 57.5; SRTT = 7/8 · 100 + 1/8 · 180 = 110.
        let rtt = after(&[100, 180]);
        assert_eq!((rtt.srtt(), rtt.rttvar()), (MS(110), Span::from_micros(57_500)));
        assert_eq!(rtt.rto(), MS(340));
        assert_eq!((rtt.min(), rtt.latest()), (MS(100), MS(180)));
        assert_eq!(rtt.probe_timeout(), MS(220));
    }

    #[test]
    fn bounds_of_the_timers() {
        let rtt = after(&[1, 1, 1]);
        assert_eq!((rtt.rto(), rtt.probe_timeout()), (RTO_MIN, PTO_MIN));
        assert_eq!(after(&[60_000]).rto(), RTO_MAX);
        // Steady 150 ms: RTO near 151 ms + a little, kept at 200 ms; the probe would be at 300 ms: capped.
        let rtt = after(&[150; 100]);
        assert_eq!((rtt.rto(), rtt.probe_timeout()), (RTO_MIN, RTO_MIN));
        let mut rtt = RttEstimator::new();
        rtt.sample(Time::ZERO, Span::ZERO);
        assert!(rtt.has_sample());
        rtt.sample(Time::ZERO, Span::ZERO);
        assert!(rtt.has_sample());
        rtt.sample(Time::NEVER, Span::MAX);
        assert_eq!(rtt.rto(), RTO_MAX);
    }

    #[test]
    fn backs_off_until_the_next_sample() {
        let mut rtt = after(&[100]);
        let mut seen = std::vec::Vec::new();
        for _ in 0..8 {
            rtt.back_off();
            seen.push(rtt.rto().as_millis());
        }
        assert_eq!(seen, [600, 1200, 2400, 4800, 9600, 10_000, 10_000, 10_000]);
        rtt.sample(Time::ZERO, MS(100));
        assert_eq!(rtt.rto(), after(&[100, 100]).rto());
    }

    #[test]
    fn forgets_an_old_minimum() {
        let mut rtt = RttEstimator::new();
        rtt.sample(Time::ZERO, MS(10));
        for s in (0..=200).step_by(10) {
            rtt.sample(Time::ZERO + Span::from_secs(s), MS(20));
            assert_eq!(rtt.min(), if s < 120 { MS(10) } else { MS(20) }, "at {s} s");
        }
    }

    /// Feeds one estimator with samples of a source `far` away and of a cache `near`, which has `permille` of
    /// a thousand packets. Returns the mean timeout, and how many of a thousand answers of the source come
    /// after the timeout that was set before.
    fn mixed(permille: u64, near: Span, far: Span) -> (Span, u64) {
        let (mut rtt, mut random) = (RttEstimator::new(), 1_u64);
        let (mut sum, mut misses, mut spurious) = (0, 0, 0);
        let steps = 100_000;
        for i in 0..steps {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let is_hit = (random >> 33) % 1_000 < permille;
            if rtt.has_sample() {
                sum += rtt.rto().as_nanos();
                misses += u64::from(!is_hit);
                spurious += u64::from(!is_hit && rtt.rto() < far);
            }
            rtt.sample(Time::ZERO + MS(i), if is_hit { near } else { far });
        }
        (Span::from_nanos(sum / steps), 1_000 * spurious / misses.max(1))
    }

    /// With hit ratio p the mean RTT is near + (1 - p)(far - near), and the mean deviation 2p(1 - p)(far -
    /// near). So the timeout is below `far` if (1 - p)(1 + 8p) < 1, which is p > 7/8, whatever the two times
    /// are. That is why answers of caches are no samples of the source's estimator.
    #[test]
    fn an_estimator_of_cache_and_source_together_times_out_before_the_source_answers() {
        for (near, far) in [(5, 2_000), (500, 3_000), (1_000, 1_600), (20, 3_500)] {
            let (near, far) = (MS(near), MS(far));
            let (below, few) = mixed(850, near, far);
            let (above, many) = mixed(900, near, far);
            let (_, most) = mixed(950, near, far);
            assert!(below > far && above < far, "{below:?} {above:?} {far:?}");
            assert!(few < 500 && many > 500 && most > 700, "of 1000: {few} {many} {most}");
            let alone = mixed(0, near, far);
            assert!(alone.0 >= far && alone.1 == 0, "{alone:?}");
        }
    }

    proptest! {
        #[test]
        fn always_sane(
            ops in prop::collection::vec((any::<bool>(), 0..100_000_000_000u64, 0..10_000_000_000u64), 1..80),
        ) {
            let mut rtt = RttEstimator::new();
            let mut now = Time::ZERO;
            let (mut low, mut high) = (Span::MAX, Span::ZERO);
            for (sample, value, step) in ops {
                now += Span::from_nanos(step);
                if sample {
                    let s = Span::from_nanos(value);
                    (low, high) = (low.min(s), high.max(s));
                    rtt.sample(now, s);
                    // Integer division loses a few nanoseconds at most.
                    prop_assert!(rtt.srtt() + Span::from_nanos(16) >= low);
                    prop_assert!(rtt.srtt() <= high.max(Span::from_nanos(1)));
                    prop_assert!(rtt.min() <= rtt.latest());
                } else {
                    let before = rtt.rto();
                    rtt.back_off();
                    prop_assert!(rtt.rto() >= before);
                }
                prop_assert!(rtt.rto() >= RTO_MIN && rtt.rto() <= RTO_MAX);
                prop_assert!(rtt.probe_timeout() <= rtt.rto() && rtt.probe_timeout() >= PTO_MIN);
            }
        }
    }
}
