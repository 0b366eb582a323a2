//! Decides whether faster sending still brings more. A path is full after three round trips without a quarter
//! more (draft-ietf-ccwg-bbr section 5.3.1.2).

use super::delivery::Sample;
use crate::softfloat::Real;

/// The number of round trips without growth after which a path is full.
const ROUNDS: u8 = 3;
/// The growth that counts, a factor of 1.25.
const GROWTH: Real = Real::from_ratio(5, 2);

/// Estimates whether a path is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plateau {
    /// The rate that the growth is measured from, in packets a nanosecond.
    base: Real,
    rounds: u8,
    /// Whether the path has been full since the last restart, and whether it ever was.
    pub(super) is_now: bool,
    pub(super) was_ever: bool,
}

impl Plateau {
    pub(super) const NEW: Self = Self { base: Real::ZERO, rounds: 0, is_now: false, was_ever: false };

    /// Restarts the estimate at the rate `base`.
    pub(super) const fn restart(&mut self, base: Real) {
        (self.base, self.rounds, self.is_now) = (base, 0, false);
    }

    /// Judges the sample of a round trip.
    pub(super) fn round(&mut self, sample: &Sample) {
        if self.is_now || sample.is_limited() {
            return;
        }
        if sample.rate >= self.base * GROWTH {
            self.restart(sample.rate);
            return;
        }
        self.rounds += 1;
        if self.rounds >= ROUNDS {
            self.fill();
        }
    }

    /// Declares the path full.
    pub(super) const fn fill(&mut self) {
        (self.is_now, self.was_ever) = (true, true);
    }
}
