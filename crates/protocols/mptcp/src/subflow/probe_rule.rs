//! When a subflow probes for a lost tail (RFC 8985 section 7), by policy.

use anabranch_algo::Span;

use crate::config::TailLoss;

/// When a lost tail is probed for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeRule {
    /// Whether there are probes at all.
    pub(super) is_on: bool,
    /// How much longer than two round trips a single segment waits, because the peer may delay its
    /// acknowledgement (RFC 8985 section 7.2).
    pub(super) single: Span,
    /// How much longer than two round trips several segments wait.
    pub(super) several: Span,
}

impl ProbeRule {
    /// Returns the rule of a policy. `ack_delay` is how long a peer with the same settings delays an
    /// acknowledgement.
    pub(super) fn of(policy: TailLoss, ack_delay: Span) -> Self {
        match policy {
            TailLoss::Off => Self { is_on: false, single: Span::ZERO, several: Span::ZERO },
            TailLoss::SamePath | TailLoss::AlternatePath | TailLoss::Overtake => {
                Self { is_on: true, single: ack_delay, several: Span::ZERO }
            }
            TailLoss::Linux => {
                Self { is_on: true, single: Span::from_millis(200), several: Span::from_millis(8) }
            }
        }
    }
}
