//! When a subscriber wants to be woken, and why.

use algo::Time;

/// What there will be to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// To look for a larger packet size.
    MtuProbe,
    /// To ask again on a path that was told to wait.
    Unblock,
    /// To take for lost what has been overtaken for long enough.
    Reordering,
    /// To send a probe before a timeout.
    TailProbe,
    /// To take everything in flight for lost.
    Timeout,
    /// To look which paths share a bottleneck.
    Grouping,
    /// Nothing.
    Idle,
}

/// The next time; the earlier is the smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timer {
    pub(super) at: Time,
    pub(super) reason: Reason,
}

impl Timer {
    /// Nothing is to be done.
    pub(super) const NEVER: Self = Self { at: Time::NEVER, reason: Reason::Idle };

    /// At `at`, for this reason.
    pub(super) const fn new(at: Time, reason: Reason) -> Self {
        Self { at, reason }
    }
}
