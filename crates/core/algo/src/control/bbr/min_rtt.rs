//! Keeps the smallest round-trip time of ten seconds and decides when to look for it (draft-ietf-ccwg-bbr
//! section 5.3.4).

use crate::{Span, Time};

/// The time for which the smallest RTT is believed.
const FILTER: Span = Span::from_secs(10);
/// The time after the last small RTT at which the queue is drained to see it again.
const PROBE_INTERVAL: Span = Span::from_secs(5);

/// Filters round-trip times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MinRtt {
    /// The smallest RTT and its time; [`Span::MAX`] before the first sample.
    min: Span,
    at: Time,
    /// The smallest RTT since the last drain of the queue, or of about [`PROBE_INTERVAL`], and its time.
    recent: Span,
    recent_at: Time,
}

impl MinRtt {
    pub(super) const NEW: Self =
        Self { min: Span::MAX, at: Time::ZERO, recent: Span::MAX, recent_at: Time::ZERO };

    /// Notes a sample; zero stands for no sample. Returns whether it is time to drain the queue.
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

    /// Notes that the queue has been drained, which restarts the wait for the next drain.
    pub(super) const fn drained(&mut self, now: Time) {
        self.recent_at = now;
    }

    /// Returns the smallest RTT; `None` before the first sample.
    pub(super) fn get(&self) -> Option<Span> {
        (self.min < Span::MAX).then_some(self.min)
    }
}
