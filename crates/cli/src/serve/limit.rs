//! The rate limit: one token bucket for all sockets and for HTTP.
//!
//! Whoever has something to send books it, and sends it when it is due. Nobody books a second time before
//! that, so all who are busy take turns, and none has to be quicker than another to get any.

use std::sync::{Mutex, PoisonError};

use algo::{Rate, Span, Time};

/// How much may go at once after a pause. A longer burst would overflow queues that the limit is to spare.
const BURST: Span = Span::from_millis(10);
/// The least that may go at once: a packet over loopback, the largest that exists.
const BURST_BYTES_MIN: u64 = 16_500;

/// A token bucket, as a time at which all that was sent will have been paid for.
#[derive(Debug)]
pub(super) struct Limit {
    rate: Option<Rate>,
    paid: Mutex<Time>,
}

impl Limit {
    pub(super) const fn new(rate: Option<Rate>) -> Self {
        Self { rate, paid: Mutex::new(Time::ZERO) }
    }

    /// Books `bytes`: they are to be sent at the time returned, which may have passed.
    pub(super) fn book(&self, now: Time, bytes: usize) -> Time {
        let Some(rate) = self.rate else { return now };
        let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        // What was not sent in time is lost, but for one burst: time in the past is credit.
        let credit = Time::from_nanos(now.as_nanos().saturating_sub(BURST.as_nanos()));
        let due = (*paid).max(credit);
        *paid = due + rate.time_for(bytes as u64);
        due
    }

    /// Whether there is a limit.
    pub(super) const fn is_set(&self) -> bool {
        self.rate.is_some()
    }

    /// The most that should be sent at once.
    pub(super) fn batch_bytes(&self) -> usize {
        match self.rate {
            None => usize::MAX,
            Some(rate) => rate.bytes_in(BURST).max(BURST_BYTES_MIN) as usize,
        }
    }

    /// The most that should wait: a fifth of a second, as routers have it; receivers take more for loss.
    pub(super) fn queue_bytes(&self, unlimited: usize) -> usize {
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
        let limit = Limit::new(Some(Rate::from_bytes(1_000_000)));
        let (mut now, mut sent) = (Time::from_nanos(77), 0);
        while now.since(Time::ZERO) < Span::from_secs(10) {
            now = now.max(limit.book(now, 1_400));
            sent += 1_400;
        }
        assert!((9_990_000..10_020_000).contains(&sent), "{sent}");
        // A pause gives no more than a burst.
        now += Span::from_secs(100);
        let burst = (0..1_000).take_while(|_| limit.book(now, 1_400) <= now).count();
        assert!(burst <= 10_000 / 1_400 + 2, "{burst}");
    }

    #[test]
    fn those_who_are_busy_take_turns() {
        let limit = Limit::new(Some(Rate::from_bytes(1_000_000)));
        let mut sent = [0_u32, 0];
        // One is always late by a millisecond, the other never.
        let late = [Span::from_millis(1), Span::ZERO];
        let mut due = [0, 1].map(|_| limit.book(Time::ZERO, 10_000));
        for _ in 0..1_000 {
            let who = usize::from(due[1] + late[1] < due[0] + late[0]);
            sent[who] += 1;
            due[who] = limit.book(due[who] + late[who], 10_000);
        }
        assert!(sent[0].abs_diff(sent[1]) < 20, "{sent:?}");
    }

    #[test]
    fn without_a_limit_everything_goes() {
        let limit = Limit::new(None);
        assert!((0..1_000).all(|_| limit.book(Time::ZERO, 1 << 20) == Time::ZERO));
        assert_eq!(limit.queue_bytes(5), 5);
    }
}
