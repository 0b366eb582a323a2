//! Whether sending faster brings more: a path is full after three round trips of which none brought a quarter
//! more (draft-ietf-ccwg-bbr section 5.3.1.2).

use super::delivery::Sample;
use crate::softfloat::Real;

/// Round trips without growth.
const ROUNDS: u8 = 3;
/// 1.25.
const GROWTH: Real = Real::from_ratio(5, 2);

/// The estimator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plateau {
    /// The rate to grow from, packets a nanosecond.
    base: Real,
    rounds: u8,
    /// Whether the path has been full since the last restart; whether ever.
    pub(super) is_now: bool,
    pub(super) was_ever: bool,
}

impl Plateau {
    pub(super) const NEW: Self = Self { base: Real::ZERO, rounds: 0, is_now: false, was_ever: false };

    /// Begins anew, from that rate.
    pub(super) const fn restart(&mut self, base: Real) {
        (self.base, self.rounds, self.is_now) = (base, 0, false);
    }

    /// A round trip is over.
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

    /// The path is full.
    pub(super) const fn fill(&mut self) {
        (self.is_now, self.was_ever) = (true, true);
    }
}
