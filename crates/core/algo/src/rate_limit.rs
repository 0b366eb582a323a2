//! The rate limit: a token bucket that all who share it hold, whatever thread they are on.
//!
//! A sender [reserves](RateLimiter::reserve) what it has to send, and sends it when it is due. It reserves
//! nothing more before that, so all busy senders take turns, and none gets more by being quicker than the
//! others. A receiver [charges](RateLimits::charge) what it has just asked for or read, and asks for or reads
//! nothing more before the time it is told. So the same holds for receivers.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::{Rate, Span, Time};

/// How much may be sent at once after a pause. A longer burst would overflow the queues that the limit
/// spares.
const BURST: Span = Span::from_millis(10);
/// The least that may be sent at once: a packet over loopback, the largest there is.
const BURST_BYTES_MIN: u64 = 16_500;
/// The least that a receiver should ask for at once: smaller pieces cost more than they smooth.
const PIECE_BYTES_MIN: u64 = 4_096;

/// A token bucket, kept as the time at which all that was sent will be paid for. Whoever shares one must take
/// the time from one clock.
#[derive(Debug)]
pub struct RateLimiter {
    rate: Option<Rate>,
    /// Nanoseconds.
    paid: AtomicU64,
}

impl RateLimiter {
    /// A limit of `rate`; none if there is no rate.
    #[must_use]
    pub const fn new(rate: Option<Rate>) -> Self {
        Self { rate, paid: AtomicU64::new(0) }
    }

    /// Reserves `bytes`: they are to be sent at the time returned, which may have passed.
    pub fn reserve(&self, now: Time, bytes: usize) -> Time {
        self.take(now, bytes).0
    }

    /// When `bytes` that go after all others begin, and when they end.
    fn take(&self, now: Time, bytes: usize) -> (Time, Time) {
        let Some(rate) = self.rate else { return (now, now) };
        // What was not sent in the past gives credit for one burst at most.
        let credit = now.as_nanos().saturating_sub(BURST.as_nanos());
        let cost = rate.time_for(bytes as u64).as_nanos();
        let due = |paid: u64| paid.max(credit);
        let take = |paid: u64| Some(due(paid).saturating_add(cost));
        // Nothing else hangs on this number, so any order will do.
        let before = self.paid.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        let begin = due(before.unwrap_or_else(|paid| paid));
        (Time::from_nanos(begin), Time::from_nanos(begin.saturating_add(cost)))
    }

    /// Whether there is a limit.
    #[must_use]
    pub const fn is_set(&self) -> bool {
        self.rate.is_some()
    }

    /// The most that should be sent at once, bytes.
    #[must_use]
    pub fn batch_bytes(&self) -> usize {
        self.bytes_in(BURST, BURST_BYTES_MIN)
    }

    /// The most that should wait, bytes: a fifth of a second, as in routers; receivers take a longer wait for
    /// a loss.
    #[must_use]
    pub fn queue_bytes(&self, unlimited: usize) -> usize {
        self.bytes_in(Span::from_millis(200), 8 * BURST_BYTES_MIN).min(unlimited)
    }

    /// What passes in `span`, at `least`.
    fn bytes_in(&self, span: Span, least: u64) -> usize {
        let bytes = |rate: Rate| usize::try_from(rate.bytes_in(span).max(least)).unwrap_or(usize::MAX);
        self.rate.map_or(usize::MAX, bytes)
    }
}

/// The limits that hold for one receiver together; without any, none.
#[derive(Clone, Debug, Default)]
pub struct RateLimits(Vec<Arc<RateLimiter>>);

impl RateLimits {
    /// All of these.
    #[must_use]
    pub fn new(limiters: impl IntoIterator<Item = Arc<RateLimiter>>) -> Self {
        Self(limiters.into_iter().filter(|limiter| limiter.is_set()).collect())
    }

    /// Whether there is no limit.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// `bytes` have been asked for or read; nothing more should be before the time returned, which may have
    /// passed.
    pub fn charge(&self, now: Time, bytes: usize) -> Time {
        self.0.iter().map(|limiter| limiter.take(now, bytes).1).max().unwrap_or(now)
    }

    /// The most that should be asked for or read at once, bytes.
    #[must_use]
    pub fn piece_bytes(&self) -> usize {
        self.bytes_in(BURST, PIECE_BYTES_MIN)
    }

    /// What may come in a second at most, bytes, and at least a piece: enough for any round trip.
    #[must_use]
    pub fn second_bytes(&self) -> usize {
        self.bytes_in(Span::from_secs(1), 16 * PIECE_BYTES_MIN)
    }

    fn bytes_in(&self, span: Span, least: u64) -> usize {
        self.0.iter().map(|limiter| limiter.bytes_in(span, least)).min().unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_the_limit() {
        let limit = RateLimiter::new(Some(Rate::from_bytes(1_000_000)));
        let (mut now, mut sent) = (Time::from_nanos(77), 0);
        while now.since(Time::ZERO) < Span::from_secs(10) {
            now = now.max(limit.reserve(now, 1_400));
            sent += 1_400;
        }
        assert!((9_990_000..10_020_000).contains(&sent), "{sent}");
        // A pause gives no more than a burst.
        now += Span::from_secs(100);
        let burst = (0..1_000).take_while(|_| limit.reserve(now, 1_400) <= now).count();
        assert!(burst <= 10_000 / 1_400 + 2, "{burst}");
    }

    #[test]
    fn those_who_are_busy_take_turns() {
        let limit = RateLimiter::new(Some(Rate::from_bytes(1_000_000)));
        let mut sent = [0_u32, 0];
        // One is always late by a millisecond, the other never.
        let late = [Span::from_millis(1), Span::ZERO];
        let mut due = [0, 1].map(|_| limit.reserve(Time::ZERO, 10_000));
        for _ in 0..1_000 {
            let who = usize::from(due[1] + late[1] < due[0] + late[0]);
            sent[who] += 1;
            due[who] = limit.reserve(due[who] + late[who], 10_000);
        }
        assert!(sent[0].abs_diff(sent[1]) < 20, "{sent:?}");
    }

    #[test]
    fn without_a_limit_everything_goes() {
        let limit = RateLimiter::new(None);
        assert!((0..1_000).all(|_| limit.reserve(Time::ZERO, 1 << 20) == Time::ZERO));
        assert_eq!(limit.queue_bytes(5), 5);
    }

    #[test]
    fn receivers_wait_for_all_their_limits() {
        let limiter = |rate| Arc::new(RateLimiter::new(Some(Rate::from_bytes(rate))));
        let (whole, one) = (limiter(1_000_000), limiter(100_000));
        let (fast, slow) = (RateLimits::new([whole.clone()]), RateLimits::new([whole, one]));
        let mut got = [0_u64, 0];
        let mut due = [Time::from_nanos(77); 2];
        let end = due[0] + Span::from_secs(10);
        while due.iter().any(|due| *due < end) {
            let who = usize::from(due[1] < due[0]);
            got[who] += 4_096;
            due[who] = [&fast, &slow][who].charge(due[who], 4_096);
        }
        assert!((9_990_000..10_040_000).contains(&(got[0] + got[1])), "{got:?}");
        assert!((990_000..1_020_000).contains(&got[1]), "{got:?}");
        assert_eq!((fast.piece_bytes(), slow.piece_bytes()), (10_000, 4_096));
        let none = RateLimits::default();
        assert!(none.is_none() && none.charge(end, 1 << 30) == end && none.piece_bytes() == usize::MAX);
        assert!(RateLimits::new([Arc::new(RateLimiter::new(None))]).is_none());
    }
}
