//! The smallest round-trip time of ten seconds, and when to look for it (draft-ietf-ccwg-bbr section 5.3.4).

use crate::{Span, Time};

/// How long the smallest is believed.
const FILTER: Span = Span::from_secs(10);
/// How long after the last small one the queue is drained to see it again.
const PROBE_INTERVAL: Span = Span::from_secs(5);

/// The filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MinRtt {
    /// The smallest, and when it was seen; [`Span::MAX`] before the first.
    min: Span,
    at: Time,
    /// The smallest since the queue was last drained, or about as long.
    recent: Span,
    recent_at: Time,
}

impl MinRtt {
    pub(super) const NEW: Self =
        Self { min: Span::MAX, at: Time::ZERO, recent: Span::MAX, recent_at: Time::ZERO };

    /// A sample; zero if there is none. Whether it is time to drain the queue.
    pub(super) fn sample(&mut self, now: Time, rtt: Span) -> bool {
        if rtt == Span::ZERO {
            return false;
        }
        let is_first = self.min == Span::MAX;
        let is_due = !is_first && now > self.recent_at + PROBE_INTERVAL;
        if rtt < self.recent || is_due {
            (self.recent, self.recent_at) = (rtt, now);
        }
        if self.recent < self.min || now > self.at + FILTER {
            (self.min, self.at) = (self.recent, self.recent_at);
        }
        is_due
    }

    /// The queue has been drained; the next time is a while away.
    pub(super) const fn drained(&mut self, now: Time) {
        self.recent_at = now;
    }

    /// The smallest; `None` before the first sample.
    pub(super) fn get(&self) -> Option<Span> {
        (self.min < Span::MAX).then_some(self.min)
    }
}
