//! The rate limit: one token bucket for all sockets and for HTTP.
//!
//! A sender reserves what it has to send, and sends it when it is due. It reserves nothing more before that,
//! so all busy senders take turns, and none gets more by being quicker than the others.

use std::sync::Mutex;

use algo::{Rate, Span, Time};

use crate::monitor::lock;

/// How much may be sent at once after a pause. A longer burst would overflow the queues that the limit
/// spares.
const BURST: Span = Span::from_millis(10);
/// The least that may be sent at once: a packet over loopback, the largest there is.
const BURST_BYTES_MIN: u64 = 16_500;

/// A token bucket, kept as the time at which all that was sent will be paid for.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    rate: Option<Rate>,
    paid: Mutex<Time>,
}

impl RateLimiter {
    pub(crate) const fn new(rate: Option<Rate>) -> Self {
        Self { rate, paid: Mutex::new(Time::ZERO) }
    }

    /// Reserves `bytes`: they are to be sent at the time returned, which may have passed.
    pub(crate) fn reserve(&self, now: Time, bytes: usize) -> Time {
        let Some(rate) = self.rate else { return now };
        let mut paid = lock(&self.paid);
        // What was not sent in the past gives credit for one burst at most.
        let credit = Time::from_nanos(now.as_nanos().saturating_sub(BURST.as_nanos()));
        let due = (*paid).max(credit);
        *paid = due + rate.time_for(bytes as u64);
        due
    }

    /// Whether there is a limit.
    pub(crate) const fn is_set(&self) -> bool {
        self.rate.is_some()
    }

    /// The most that should be sent at once.
    pub(crate) fn batch_bytes(&self) -> usize {
        match self.rate {
            None => usize::MAX,
            Some(rate) => rate.bytes_in(BURST).max(BURST_BYTES_MIN) as usize,
        }
    }

    /// The most that should wait: a fifth of a second, as in routers; receivers take a longer wait for a
    /// loss.
    pub(crate) fn queue_bytes(&self, unlimited: usize) -> usize {
        match self.rate {
            None => unlimited,
            Some(rate) => {
                (rate.bytes_in(Span::from_millis(200)).max(8 * BURST_BYTES_MIN) as usize).min(unlimited)
            }
        }
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
}
