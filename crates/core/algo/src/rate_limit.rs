//! The rate limit: a token bucket that several senders or receivers share, on whatever threads they run.
//!
//! A sender [reserves](RateLimiter::reserve) the bytes that it has to send, and sends them when they are due.
//! It reserves nothing more before that, so all busy senders take turns, and none gets more by being quicker
//! than the others. A receiver [charges](RateLimits::charge) the bytes that it has just asked for or read,
//! and asks for or reads nothing more before the returned time. So receivers take turns, too.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::{Rate, Span, Time};

/// The burst that may be sent at once after a pause, as time at the limit. A longer burst would overflow the
/// queues that the limit spares.
const BURST: Span = Span::from_millis(10);
/// The least burst, in bytes: a packet over loopback, the largest there is.
const BURST_BYTES_MIN: u64 = 16_500;
/// The least that a receiver should ask for at once, in bytes: smaller pieces cost more than they smooth.
const PIECE_BYTES_MIN: u64 = 4_096;

/// The number that stands for no rate.
const UNLIMITED: u64 = u64::MAX;

/// A token bucket, kept as the time at which all that was sent will be paid for. All users of a bucket must
/// take the time from one clock.
#[derive(Debug)]
pub struct RateLimiter {
    /// The rate in bytes a second, or [`UNLIMITED`].
    rate: AtomicU64,
    /// Whether the rate may change while the bucket is used.
    is_changeable: bool,
    /// The time at which all bytes are paid for, in nanoseconds.
    paid: AtomicU64,
}

impl RateLimiter {
    /// Creates a limit of `rate`; no limit if there is no rate.
    #[must_use]
    pub const fn new(rate: Option<Rate>) -> Self {
        Self { rate: AtomicU64::new(number(rate)), is_changeable: false, paid: AtomicU64::new(0) }
    }

    /// Creates a limit of `rate` that [`set`](Self::set) may change.
    #[must_use]
    pub const fn changeable(rate: Option<Rate>) -> Self {
        Self { is_changeable: true, ..Self::new(rate) }
    }

    /// Changes the rate for all bytes that are reserved from now on. What was reserved before stays due when
    /// it was.
    ///
    /// # Panics
    /// If the limit was not made by [`changeable`](Self::changeable): its users may have left it out.
    pub fn set(&self, rate: Option<Rate>) {
        assert!(self.is_changeable, "a fixed limit cannot be changed");
        // No other data depends on this number, so any memory order will do.
        self.rate.store(number(rate), Ordering::Relaxed);
    }

    /// Returns the rate; `None` if there is no limit now.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        match self.rate.load(Ordering::Relaxed) {
            UNLIMITED => None,
            rate => Some(Rate::from_bytes(rate)),
        }
    }

    /// Reserves `bytes` bytes. Returns the time at which they are to be sent, which may have passed.
    pub fn reserve(&self, now: Time, bytes: usize) -> Time {
        self.take(now, bytes).0
    }

    /// Returns when `bytes` bytes that go after all others begin, and when they end.
    fn take(&self, now: Time, bytes: usize) -> (Time, Time) {
        let Some(rate) = self.rate() else { return (now, now) };
        // Time in which nothing was sent gives credit for one burst at most.
        let credit = now.as_nanos().saturating_sub(BURST.as_nanos());
        let cost = rate.time_for(bytes as u64).as_nanos();
        let due = |paid: u64| paid.max(credit);
        let take = |paid: u64| Some(due(paid).saturating_add(cost));
        // No other data depends on this number, so any memory order will do.
        let before = self.paid.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        let begin = due(before.unwrap_or_else(|paid| paid));
        (Time::from_nanos(begin), Time::from_nanos(begin.saturating_add(cost)))
    }

    /// Whether there is a limit, or may be one later.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.is_changeable || self.rate().is_some()
    }

    /// Returns the most bytes that should be sent at once.
    #[must_use]
    pub fn batch_bytes(&self) -> usize {
        self.bytes_in(BURST, BURST_BYTES_MIN)
    }

    /// Returns the most bytes that should wait: those of a fifth of a second, as in routers, but at most
    /// `unlimited`. Receivers take a longer wait for a loss.
    #[must_use]
    pub fn queue_bytes(&self, unlimited: usize) -> usize {
        self.bytes_in(Span::from_millis(200), 8 * BURST_BYTES_MIN).min(unlimited)
    }

    /// Returns the bytes that pass in `span`, but not less than `least`.
    fn bytes_in(&self, span: Span, least: u64) -> usize {
        let bytes = |rate: Rate| usize::try_from(rate.bytes_in(span).max(least)).unwrap_or(usize::MAX);
        self.rate().map_or(usize::MAX, bytes)
    }
}

/// Returns the number that stands for a rate.
const fn number(rate: Option<Rate>) -> u64 {
    match rate {
        Some(rate) => rate.as_bytes(),
        None => UNLIMITED,
    }
}

/// The limits that one receiver obeys together. There may be none.
#[derive(Clone, Debug, Default)]
pub struct RateLimits(Vec<(Arc<RateLimiter>, Span)>);

impl RateLimits {
    /// Creates the limits of all these limiters that have a rate.
    #[must_use]
    pub fn new(limiters: impl IntoIterator<Item = Arc<RateLimiter>>) -> Self {
        Self(limiters.into_iter().filter(|limiter| limiter.is_set()).map(|one| (one, Span::ZERO)).collect())
    }

    /// Adds a limiter that takes the time from an older clock. `ahead` is what that clock shows when the
    /// receiver's clock shows zero.
    #[must_use]
    pub fn and(mut self, limiter: Arc<RateLimiter>, ahead: Span) -> Self {
        if limiter.is_set() {
            self.0.push((limiter, ahead));
        }
        self
    }

    /// Whether there is no limit.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Records that `bytes` bytes have been asked for or read. Returns the time before which no more should
    /// be, which may have passed.
    pub fn charge(&self, now: Time, bytes: usize) -> Time {
        let end = |(limiter, ahead): &(Arc<RateLimiter>, Span)| {
            Time::ZERO + limiter.take(now + *ahead, bytes).1.since(Time::ZERO + *ahead)
        };
        self.0.iter().map(end).max().unwrap_or(now)
    }

    /// Returns the most bytes that should be asked for or read at once.
    #[must_use]
    pub fn piece_bytes(&self) -> usize {
        self.bytes_in(BURST, PIECE_BYTES_MIN)
    }

    /// Returns the bytes that may come in a second, but not less than those of 16 pieces: enough for any
    /// round trip.
    #[must_use]
    pub fn second_bytes(&self) -> usize {
        self.bytes_in(Span::from_secs(1), 16 * PIECE_BYTES_MIN)
    }

    fn bytes_in(&self, span: Span, least: u64) -> usize {
        self.0.iter().map(|(limiter, _)| limiter.bytes_in(span, least)).min().unwrap_or(usize::MAX)
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
        // A pause allows no more than a burst.
        now += Span::from_secs(100);
        let burst = (0..1_000).take_while(|_| limit.reserve(now, 1_400) <= now).count();
        assert!(burst <= 10_000 / 1_400 + 2, "{burst}");
    }

    #[test]
    fn those_who_are_busy_take_turns() {
        let limit = RateLimiter::new(Some(Rate::from_bytes(1_000_000)));
        let mut sent = [0_u32, 0];
        // One sender is always late by a millisecond, the other never.
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
    fn a_limit_changes_for_receivers_of_two_clocks() {
        let limit = Arc::new(RateLimiter::changeable(None));
        let ahead = Span::from_secs(1_000);
        let both = [RateLimits::default(), RateLimits::new([])];
        let [old, new] = both.map(|none| none.and(Arc::clone(&limit), Span::ZERO));
        let new = RateLimits(new.0.into_iter().map(|(limiter, _)| (limiter, ahead)).collect());
        let now = Time::from_nanos(77);
        assert!(!old.is_none() && old.charge(now + ahead, 1 << 30) == now + ahead);
        limit.set(Some(Rate::from_bytes(1_000_000)));
        let mut due = [now + ahead, now];
        let mut got = 0_u64;
        while due[1].since(now) < Span::from_secs(10) {
            due = [old.charge(due[0], 4_096), new.charge(due[1], 4_096)];
            got += 2 * 4_096;
        }
        assert!((9_980_000..10_040_000).contains(&got), "{got}");
        assert!(due[0].since(due[1]) <= ahead, "the second was charged after the first");
        limit.set(None);
        assert_eq!((new.charge(now, 1 << 30), limit.rate()), (now, None));
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
