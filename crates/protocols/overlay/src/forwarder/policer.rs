//! The rate limit of a line in one direction: frames above it are dropped, because a forwarder has no queue.

use anabranch_algo::{Rate, Span, Time};

/// The burst that may pass at once after a pause, as time at the rate limit; it is no less than
/// [`BURST_BYTES_MIN`]. A queue of this length would have held as much.
const BURST: Span = Span::from_millis(50);
/// The least burst, in bytes: a train of frames as the kernel hands it over, and one more.
const BURST_BYTES_MIN: u64 = 2 << 16;

/// A token bucket, kept as the time at which all passed bytes are paid for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policer {
    rate: Rate,
    burst: Span,
    paid: Time,
}

impl Policer {
    pub(super) fn new(rate: Rate) -> Self {
        Self { rate, burst: BURST.max(rate.time_for(BURST_BYTES_MIN)), paid: Time::ZERO }
    }

    /// Returns how many of `bytes`, which come in pieces of `stride`, pass: whole pieces only.
    pub(super) fn take(&mut self, now: Time, bytes: usize, stride: usize) -> usize {
        // Time in which nothing was sent gives credit for one burst at most.
        let since = now.since(Time::ZERO);
        let credit = if since > self.burst { Time::ZERO + (since - self.burst) } else { Time::ZERO };
        self.paid = self.paid.max(credit);
        let left = self.rate.bytes_in(now.since(self.paid.min(now)));
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let passed = if bytes <= left { bytes } else { left / stride.max(1) * stride };
        self.paid += self.rate.time_for(passed as u64);
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_the_limit_whatever_comes() {
        let mut policer = Policer::new(Rate::from_bytes(1_000_000));
        let (mut now, mut passed) = (Time::ZERO, 0);
        for _ in 0..10_000 {
            now += Span::from_millis(1);
            // Ten times too much arrives, in trains of seven frames.
            let train = policer.take(now, 10_000, 1_424);
            assert!(train == 10_000 || train.is_multiple_of(1_424), "whole frames");
            passed += train;
        }
        assert!((9_990_000..10_140_000).contains(&passed), "{passed}");
        // A pause allows no more than a burst.
        now += Span::from_secs(100);
        let burst: usize = (0..1_000).map(|_| policer.take(now, 1_424, 1_424)).sum();
        assert!((129_000..=131_072).contains(&burst), "{burst}");
        assert_eq!(policer.take(now, 1_424, 1_424), 0);
    }

    #[test]
    fn what_is_below_passes() {
        let mut policer = Policer::new(Rate::from_bytes(1_000_000));
        let mut now = Time::ZERO;
        for _ in 0..1_000 {
            now += Span::from_millis(2);
            assert_eq!(policer.take(now, 1_424, 1_424), 1_424);
        }
    }
}
