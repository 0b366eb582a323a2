//! Measures round-trip times as the tap sees them: from a range of numbers that was sent once to its
//! acknowledgement.

use std::collections::VecDeque;

use crate::distribution::Distribution;

/// The most ranges that wait for their acknowledgement; further ones give no round-trip time.
const WAITING_MAX: usize = 4096;

/// The round-trip times of a sequence of numbers.
#[derive(Debug, Default)]
pub(crate) struct RoundTrips {
    /// The round-trip times, µs.
    pub(crate) us: Distribution,
    /// The end of each range, and when it was sent, ns; in order.
    waiting: VecDeque<(u64, u64)>,
}

impl RoundTrips {
    /// Records that numbers up to `end` are sent for the first time, beyond all others.
    pub(crate) fn sent(&mut self, now: u64, end: u64) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back((end, now));
        }
    }

    /// Records that numbers from `start` on are sent again. By Karn's rule, they give no round-trip time, and
    /// neither do the ranges behind them.
    pub(crate) fn sent_again(&mut self, start: u64) {
        while self.waiting.back().is_some_and(|(end, _)| *end > start) {
            self.waiting.pop_back();
        }
    }

    /// Records that all numbers below `ack` are acknowledged. Of several ranges only the youngest gives a
    /// round-trip time, because it caused the acknowledgement.
    pub(crate) fn acknowledged(&mut self, now: u64, ack: u64) {
        let mut sent = None;
        while let Some((end, time)) = self.waiting.front().copied()
            && end <= ack
        {
            self.waiting.pop_front();
            sent = Some(time);
        }
        if let Some(sent) = sent {
            self.us.add(now.saturating_sub(sent) / 1000, 1);
        }
    }
}
