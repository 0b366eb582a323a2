//! When a connection is tried again after a failure or a stall, or after its server asked for a pause.

use anabranch_algo::{Span, Time};

/// The first wait after a failure. Each further wait in a row is twice as long.
pub const RETRY_MIN: Span = Span::from_millis(500);
/// The longest wait after a failure.
pub const RETRY_MAX: Span = Span::from_secs(30);
/// The longest wait that a server can ask for.
pub const BUSY_MAX: Span = Span::from_secs(600);

/// The back-off of one connection, for both schedulers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    /// The connection gets no request before this time. If it is stalled, its requests are cancelled at this
    /// time.
    pub(crate) until: Time,
    /// Whether the connection failed and gets only small requests until it has answered one.
    pub(crate) trial: bool,
    /// The number of failures and stalls in a row.
    failures: u32,
}

impl Backoff {
    /// Whether the wait is over.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        now >= self.until
    }

    /// Returns the number of failures in a row.
    pub(crate) const fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns the wait after one more failure: `first`, then twice as long for each in a row, up to
    /// `longest`.
    pub(crate) fn wait(&self, first: Span, longest: Span) -> Span {
        backoff(first, self.failures, longest)
    }

    /// Records one more failure, after which the wait ends at `until`.
    pub(crate) const fn hold(&mut self, until: Time) {
        self.until = until;
        self.failures = self.failures.saturating_add(1);
    }

    /// Records that a request was answered completely.
    pub(crate) const fn on_success(&mut self) {
        (self.trial, self.failures) = (false, 0);
    }
}

/// Returns the wait after a failure that follows `times` failures in a row: `first`, then twice as long each
/// time, up to `longest`.
#[must_use]
pub fn backoff(first: Span, times: u32, longest: Span) -> Span {
    first.times(1 << times.min(16)).min(longest)
}
