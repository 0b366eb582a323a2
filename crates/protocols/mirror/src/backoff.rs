//! When a connection is tried again after a failure, a stall, or because its server asked to be left alone.

use anabranch_algo::{Span, Time};

/// The first wait after a failure; each further one in a row is twice as long.
pub const RETRY_MIN: Span = Span::from_millis(500);
/// The longest wait after a failure.
pub const RETRY_MAX: Span = Span::from_secs(30);
/// The longest wait that a server can ask for.
pub const BUSY_MAX: Span = Span::from_secs(600);

/// The wait of one connection, of either scheduler.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    /// It gets no request before this time; if it is stalled, no attempt.
    pub(crate) until: Time,
    /// It failed, and gets little until it has answered once.
    pub(crate) trial: bool,
    /// Failures, and stalls, in a row.
    failures: u32,
}

impl Backoff {
    /// Whether the wait is over.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        now >= self.until
    }

    /// The number of failures in a row.
    pub(crate) const fn failures(&self) -> u32 {
        self.failures
    }

    /// The wait after one more failure: `first`, then twice as long for each in a row, up to `longest`.
    pub(crate) fn wait(&self, first: Span, longest: Span) -> Span {
        backoff(first, self.failures, longest)
    }

    /// One more failure: the wait ends at `until`.
    pub(crate) const fn hold(&mut self, until: Time) {
        self.until = until;
        self.failures = self.failures.saturating_add(1);
    }

    /// A request was answered to its end.
    pub(crate) const fn on_success(&mut self) {
        (self.trial, self.failures) = (false, 0);
    }
}

/// The wait after so many failures in a row before this one: `first`, then twice as long each time, up to
/// `longest`.
#[must_use]
pub fn backoff(first: Span, times: u32, longest: Span) -> Span {
    first.times(1 << times.min(16)).min(longest)
}
