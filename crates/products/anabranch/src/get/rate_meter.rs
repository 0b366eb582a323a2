//! Computes the rates of paths from their byte counters.

use anabranch_algo::{Span, Time};

/// Computes rates from counters, over about the last half second.
pub(super) struct RateMeter {
    pub(super) start: Time,
    at: Time,
    bytes: Vec<u64>,
    rates: Vec<u64>,
}

impl RateMeter {
    pub(super) fn new(now: Time) -> Self {
        Self { start: now, at: now, bytes: Vec::new(), rates: Vec::new() }
    }

    /// Returns the rate of each path in bytes a second, given how many bytes each has brought so far. At the
    /// end of the transfer, returns the mean rates over its whole time.
    pub(super) fn rates(&mut self, now: Time, counts: &[u64], end: bool) -> Vec<u64> {
        if end {
            let span = now.since(self.start);
            return counts.iter().map(|bytes| anabranch_algo::Rate::of(*bytes, span).as_bytes()).collect();
        }
        self.bytes.resize(counts.len(), 0);
        self.rates.resize(counts.len(), 0);
        let span = now.since(self.at);
        if span >= Span::from_millis(400) {
            for ((count, before), rate) in counts.iter().zip(&mut self.bytes).zip(&mut self.rates) {
                *rate = anabranch_algo::Rate::of(count.saturating_sub(*before), span).as_bytes();
                *before = *count;
            }
            self.at = now;
        }
        self.rates.clone()
    }
}
