//! Limits the rate at which a transfer receives: in all, and over each egress that has a separate limit.

use std::sync::Arc;

use anabranch_algo::{Rate, RateLimiter, RateLimits};

use crate::clock::Clock;
use crate::egress::Egress;

/// A rate limit that several transfers share, and that may change while they run. Clones are one limit.
#[derive(Clone, Debug)]
pub struct SharedLimit {
    limiter: Arc<RateLimiter>,
    clock: Clock,
}

impl SharedLimit {
    /// Creates a limit of `rate`; `None` is no limit until [`set`](Self::set) sets one.
    #[must_use]
    pub fn new(rate: Option<Rate>) -> Self {
        Self { limiter: Arc::new(RateLimiter::changeable(rate)), clock: Clock::start() }
    }

    /// Changes the rate, also for transfers that run.
    pub fn set(&self, rate: Option<Rate>) {
        self.limiter.set(rate);
    }

    /// Returns the rate; `None` if there is no limit now.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        self.limiter.rate()
    }
}

/// Holds the rate limits of one transfer. Clones share them. All times given to the limits must be of one
/// clock.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    whole: Option<Arc<RateLimiter>>,
    via: Vec<(Egress, Arc<RateLimiter>)>,
    shared: Vec<SharedLimit>,
    /// The clock of the transfer; `None` before [`on`](Self::on) has set it.
    clock: Option<Clock>,
}

impl Limits {
    /// Creates the limits: `whole`, if given, for all received data, and one limit for each egress of `via`.
    /// An egress that is given twice has both limits.
    #[must_use]
    pub fn new(whole: Option<Rate>, via: impl IntoIterator<Item = (Egress, Rate)>) -> Self {
        let limiter = |rate| Arc::new(RateLimiter::new(Some(rate)));
        let via = via.into_iter().map(|(via, rate)| (via, limiter(rate)));
        Self { whole: whole.map(limiter), via: via.collect(), shared: Vec::new(), clock: None }
    }

    /// Adds limits that other transfers share.
    #[must_use]
    pub fn shared(self, shared: Vec<SharedLimit>) -> Self {
        Self { shared, ..self }
    }

    /// Sets the clock whose times the limits are given. Without it, a shared limit takes the times as those
    /// of its own clock.
    #[must_use]
    pub fn on(self, clock: Clock) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Returns the limits for the data that arrives over `via`.
    #[must_use]
    pub fn of(&self, via: &Egress) -> RateLimits {
        let named = self.via.iter().filter(|(egress, _)| egress == via).map(|(_, limiter)| limiter);
        let own = RateLimits::new(self.whole.iter().chain(named).map(Arc::clone));
        self.shared.iter().fold(own, |all, shared| {
            let ahead = self.clock.unwrap_or(shared.clock).after(&shared.clock);
            all.and(Arc::clone(&shared.limiter), ahead)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_limit_holds_for_transfers_that_begin_later() {
        use anabranch_algo::{Span, Time};
        let shared = SharedLimit::new(Some(Rate::from_bytes(1_000_000)));
        let limits = Limits::default().shared(vec![shared.clone()]);
        let first = limits.clone().on(shared.clock).of(&Egress::any());
        let later = Clock::start();
        let second = limits.on(later).of(&Egress::any());
        let ahead = later.after(&shared.clock);
        let now = Time::ZERO + Span::from_secs(5);
        let end = first.charge(now + ahead, 500_000);
        assert!(end.since(now + ahead) >= Span::from_millis(490), "{end:?}");
        let end = second.charge(now, 500_000);
        assert!(end.since(now) >= Span::from_millis(980), "the first transfer's bytes count, too: {end:?}");
        shared.set(None);
        assert_eq!((second.charge(now, 500_000), shared.rate()), (now, None));
    }

    #[test]
    fn those_that_hold() {
        let rate = |megabytes: u64| Rate::from_bytes(megabytes * 1_000_000);
        let named = Egress::parse("127.0.0.7").expect("it is local");
        let limits = Limits::new(Some(rate(9)), [(named.clone(), rate(1))]);
        assert_eq!(limits.of(&named).piece_bytes(), 10_000);
        assert_eq!(limits.of(&Egress::any()).piece_bytes(), 90_000);
        assert!(Limits::new(None, [(named, rate(1))]).of(&Egress::any()).is_none());
    }
}
