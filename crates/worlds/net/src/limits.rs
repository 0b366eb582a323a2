//! Limits the rate at which a transfer receives: in all, and over each egress that has a separate limit.

use std::sync::Arc;

use anabranch_algo::{Rate, RateLimiter, RateLimits};

use crate::egress::Egress;

/// Holds the rate limits of one transfer. Clones share them. All times given to the limits must be of one
/// clock.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    whole: Option<Arc<RateLimiter>>,
    via: Vec<(Egress, Arc<RateLimiter>)>,
}

impl Limits {
    /// Creates the limits: `whole`, if given, for all received data, and one limit for each egress of `via`.
    /// An egress that is given twice has both limits.
    #[must_use]
    pub fn new(whole: Option<Rate>, via: impl IntoIterator<Item = (Egress, Rate)>) -> Self {
        let limiter = |rate| Arc::new(RateLimiter::new(Some(rate)));
        let via = via.into_iter().map(|(via, rate)| (via, limiter(rate)));
        Self { whole: whole.map(limiter), via: via.collect() }
    }

    /// Returns the limits for the data that arrives over `via`.
    #[must_use]
    pub fn of(&self, via: &Egress) -> RateLimits {
        let named = self.via.iter().filter(|(egress, _)| egress == via).map(|(_, limiter)| limiter);
        RateLimits::new(self.whole.iter().chain(named).map(Arc::clone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
