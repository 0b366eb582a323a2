//! Round-trip times as the tap sees them: from a range of numbers that was sent once to the acknowledgement
//! of it.

use std::collections::VecDeque;

use crate::distribution::Distribution;

/// Ranges whose acknowledgement is waited for at most; those beyond it give no round-trip time.
const WAITING_MAX: usize = 4096;

/// The round-trip times of a sequence of numbers.
#[derive(Debug, Default)]
pub(crate) struct RoundTrips {
    /// µs.
    pub(crate) us: Distribution,
    /// The end of each range, and when it was sent, ns; in order.
    waiting: VecDeque<(u64, u64)>,
}

impl RoundTrips {
    /// Numbers up to `end` are sent for the first time, beyond all others.
    pub(crate) fn sent(&mut self, now: u64, end: u64) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back((end, now));
        }
    }

    /// Numbers from `start` on are sent again. Karn's rule: they give no round-trip time, nor does what waits
    /// behind them.
    pub(crate) fn sent_again(&mut self, start: u64) {
        while self.waiting.back().is_some_and(|(end, _)| *end > start) {
            self.waiting.pop_back();
        }
    }

    /// All numbers below `ack` are acknowledged. Of several ranges the youngest counts: it is the one that
    /// caused the acknowledgement.
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
