//! Defines the phases of BBR and their gains (draft-ietf-ccwg-bbr section 5.6.1).

use crate::softfloat::Real;

/// Names a phase; `control/bbr.rs` has the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl Phase {
    /// Returns the factor of the rate that gives the pace: 2.77, 0.5, 0.9, 1 or 1.25.
    pub(super) const fn pacing_gain(self) -> Real {
        match self {
            Self::Startup => Real::from_ratio(709, 8),
            Self::Drain => Real::from_ratio(1, 1),
            Self::Down => Real::from_ratio(922, 10),
            Self::Cruise | Self::Refill | Self::ProbeRtt => Real::ONE,
            Self::Up => Real::from_ratio(5, 2),
        }
    }

    /// Returns the factor of the product that gives the window: 2, 2.25 or 0.5.
    pub(super) const fn cwnd_gain(self) -> Real {
        match self {
            Self::Up => Real::from_ratio(9, 2),
            Self::ProbeRtt => Real::from_ratio(1, 1),
            _ => Real::from_ratio(2, 0),
        }
    }

    pub(super) const fn is_probing(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }
}
