//! Computes exactly, in integers, when the last bit of a packet leaves.
//!
//! One byte is 10⁹ nanobytes, so a rate of `r` bytes per second sends `r` nanobytes per nanosecond, and no
//! fractions are needed. A packet leaves at the end of the nanosecond in which its last bit leaves. The rest
//! of that nanosecond is credited to the next packet if it follows immediately. So the k-th packet of a busy
//! period leaves at ⌈(all their bytes) / rate⌉, however large k is.

use anabranch_algo::{Rate, Span, Time};

const NANOBYTES: u64 = 1_000_000_000;

/// The nanobytes that a transmitter could still send in the nanosecond in which its last packet left.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Credit(u64);

impl Credit {
    /// Uses the credit for a packet of `bytes` bytes that follows immediately. Returns the nanobytes left to
    /// send, at most 2³² · 10⁹, which fits.
    #[inline]
    pub(crate) const fn spend(&mut self, bytes: u32) -> u64 {
        let whole = bytes as u64 * NANOBYTES;
        let work = whole.saturating_sub(self.0);
        self.0 -= whole - work;
        work
    }

    /// Adds to the credit after `work` nanobytes have left at `rate`, which is not zero. Returns the
    /// nanoseconds that this took.
    #[inline]
    pub(crate) const fn earn(&mut self, work: u64, rate: u64) -> u64 {
        let nanos = work.div_ceil(rate);
        self.0 += nanos * rate - work;
        nanos
    }
}

/// The transmitter of a link: idle, or busy with one packet.
#[derive(Clone, Debug)]
pub(crate) struct RateTransmitter {
    rate: Option<Rate>,
    /// The time when the last bit leaves; `NEVER` when idle or stalled.
    done: Time,
    /// The nanobytes of the packet that are left at `since`.
    work: u64,
    since: Time,
    /// The time when the transmitter last became idle, and its credit then.
    idle_since: Time,
    credit: Credit,
}

impl RateTransmitter {
    pub(crate) const fn new(rate: Option<Rate>) -> Self {
        Self {
            rate,
            done: Time::NEVER,
            work: 0,
            since: Time::ZERO,
            idle_since: Time::ZERO,
            credit: Credit(0),
        }
    }

    /// Returns when the packet being sent has left; [`Time::NEVER`] if there is none or the rate is zero.
    pub(crate) const fn done(&self) -> Time {
        self.done
    }

    /// Starts to send `bytes` bytes at `at`. The transmitter must be idle.
    pub(crate) fn start(&mut self, at: Time, bytes: u32) {
        if at != self.idle_since {
            self.credit = Credit(0);
        }
        self.work = self.credit.spend(bytes);
        self.since = at;
        self.done = self.due();
    }

    /// Becomes idle, because the packet has left at [`done`](Self::done).
    pub(crate) fn finish(&mut self) {
        if let Some(rate @ 1..) = self.rate.map(Rate::as_bytes) {
            self.credit.earn(self.work, rate);
        }
        self.idle_since = self.done;
        self.done = Time::NEVER;
    }

    /// Drops the packet being sent.
    pub(crate) const fn abort(&mut self) {
        self.done = Time::NEVER;
        self.credit = Credit(0);
    }

    /// Records that the transmitter has been idle since `at`, with `credit` to spare.
    pub(crate) const fn idle(&mut self, at: Time, credit: Credit) {
        self.idle_since = at;
        self.credit = credit;
    }

    /// Records that the transmitter is busy at `at` with a packet that leaves at `done`.
    pub(crate) fn resume(&mut self, at: Time, done: Time) {
        let work = self.rate.map_or(0, |rate| rate.as_bytes().saturating_mul(done.since(at).as_nanos()));
        (self.work, self.since, self.done, self.credit) = (work, at, done, Credit(0));
    }

    /// Changes the rate at `at`; `busy` tells whether a packet is being sent.
    pub(crate) fn set_rate(&mut self, at: Time, rate: Option<Rate>, busy: bool) {
        if busy {
            if let Some(old) = self.rate {
                let sent = u128::from(old.as_bytes()) * u128::from(at.since(self.since).as_nanos());
                self.work = self.work.saturating_sub(u64::try_from(sent).unwrap_or(u64::MAX));
            }
            self.since = at;
        }
        self.credit = Credit(0);
        self.rate = rate;
        if busy {
            self.done = self.due();
        }
    }

    fn due(&self) -> Time {
        match self.rate.map(Rate::as_bytes) {
            None => self.since,
            Some(0) => Time::NEVER,
            Some(rate) => self.since + Span::from_nanos(self.work.div_ceil(rate)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back_to_back(rate: u64, bytes: u32, count: u64) -> Time {
        let mut transmitter = RateTransmitter::new(Some(Rate::from_bytes(rate)));
        let mut at = Time::from_nanos(5);
        for _ in 0..count {
            transmitter.start(at, bytes);
            at = transmitter.done();
            transmitter.finish();
        }
        at
    }

    #[test]
    fn no_drift_at_any_rate() {
        // 3 bytes/s: a byte takes a third of a second. 7 · 10⁹ + 1: several packets leave in a nanosecond.
        for (rate, bytes) in [(3u64, 1u32), (12_500_000, 1_500), (1_234_567_891, 1_366), (7_000_000_001, 1)] {
            let count = 100_000u64;
            let exact = (u128::from(bytes) * u128::from(count) * 1_000_000_000).div_ceil(u128::from(rate));
            assert_eq!(u128::from(back_to_back(rate, bytes, count).as_nanos()), 5 + exact, "{rate}");
        }
    }

    #[test]
    fn an_idle_transmitter_saves_nothing_up() {
        let mut transmitter = RateTransmitter::new(Some(Rate::from_bytes(3)));
        transmitter.start(Time::ZERO, 1);
        assert_eq!(transmitter.done(), Time::from_nanos(333_333_334));
        transmitter.finish();
        transmitter.start(Time::from_nanos(333_333_335), 1);
        assert_eq!(transmitter.done(), Time::from_nanos(333_333_335 + 333_333_334));
        transmitter.finish();
        transmitter.start(Time::from_nanos(666_666_669), 1);
        assert_eq!(
            transmitter.done(),
            Time::from_nanos(666_666_669 + 333_333_333),
            "this one follows at once"
        );
    }

    #[test]
    fn extremes_do_not_overflow() {
        assert_eq!(back_to_back(u64::MAX, u32::MAX, 1_000), Time::from_nanos(6 + 232));
        assert_eq!(back_to_back(1, u32::MAX, 2), Time::from_nanos(5 + 2 * 4_294_967_295_000_000_000));
    }

    #[test]
    fn the_rate_changes_within_a_packet() {
        let mut transmitter = RateTransmitter::new(Some(Rate::from_bytes(1_000)));
        transmitter.start(Time::ZERO, 1_000);
        transmitter.set_rate(Time::from_nanos(250_000_000), Some(Rate::from_bytes(3_000)), true);
        assert_eq!(transmitter.done(), Time::from_nanos(500_000_000));
        transmitter.set_rate(Time::from_nanos(300_000_000), Some(Rate::from_bytes(0)), true);
        assert_eq!(transmitter.done(), Time::NEVER);
        transmitter.set_rate(Time::from_nanos(900_000_000), Some(Rate::from_bytes(600)), true);
        assert_eq!(transmitter.done(), Time::from_nanos(1_900_000_000));
        transmitter.set_rate(Time::from_nanos(1_000_000_000), None, true);
        assert_eq!(transmitter.done(), Time::from_nanos(1_000_000_000));
    }
}
