//! When a subscriber has to be woken, and why.

use anabranch_algo::Time;

/// The reason for which a subscriber wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// To probe for a larger packet size.
    MtuProbe,
    /// To ask again on a path that was told to wait.
    Unblock,
    /// To send requests that pacing has delayed.
    Pacing,
    /// To declare packets lost that later ones overtook long enough ago.
    Reordering,
    /// To send a probe before a timeout.
    TailProbe,
    /// To declare everything in flight on a path lost.
    Timeout,
    /// To detect which paths share a bottleneck.
    Grouping,
    /// There is nothing to do.
    Idle,
}

/// When to wake next, and why. Timers are ordered by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timer {
    pub(super) at: Time,
    pub(super) reason: Reason,
}

impl Timer {
    /// No wake-up.
    pub(super) const NEVER: Self = Self { at: Time::NEVER, reason: Reason::Idle };

    /// Creates a wake-up at `at` for this reason.
    pub(super) const fn new(at: Time, reason: Reason) -> Self {
        Self { at, reason }
    }
}
