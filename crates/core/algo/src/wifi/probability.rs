//! A probability in fixed point.

/// The number of bits after the binary point.
const BITS: u32 = 62;

/// A probability from 0 to 1, in units of 2⁻⁶². Each operation is rounded to the nearest unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Probability(u64);

impl Probability {
    /// Never.
    pub const ZERO: Self = Self(0);
    /// Always.
    pub const ONE: Self = Self(1 << BITS);

    /// Returns `part / whole`, at most one; zero if `whole` is zero.
    #[must_use]
    pub const fn of(part: u64, whole: u64) -> Self {
        if whole == 0 {
            return Self::ZERO;
        }
        Self::saturating((((part as u128) << BITS) + (whole / 2) as u128) / whole as u128)
    }

    /// Returns `units` units of 2⁻⁶², at most one.
    pub(super) const fn saturating(units: u128) -> Self {
        if units > Self::ONE.0 as u128 { Self::ONE } else { Self(units as u64) }
    }

    /// Returns the probability in units of 2⁻⁶².
    #[must_use]
    pub const fn units(self) -> u64 {
        self.0
    }

    /// Returns the probability in parts of 10⁹, rounded to the nearest.
    #[must_use]
    pub const fn parts_per_billion(self) -> u64 {
        ((self.0 as u128 * 1_000_000_000 + (1 << (BITS - 1))) >> BITS) as u64
    }

    /// Returns the probability that this does not happen: `1 − self`.
    #[must_use]
    pub const fn complement(self) -> Self {
        Self(Self::ONE.0 - self.0)
    }

    /// Returns the probability that two independent things happen: the product.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(((self.0 as u128 * other.0 as u128 + (1 << (BITS - 1))) >> BITS) as u64)
    }

    /// Returns `self + other`, at most one.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self::saturating(self.0 as u128 + other.0 as u128)
    }

    /// Returns `self − other`; zero if `other` is the larger one.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns `value · self`, rounded to the nearest integer.
    #[must_use]
    pub const fn scale(self, value: u64) -> u64 {
        // The product is at most 2⁶⁴ · 2⁶², so the sum fits, and the quotient is at most `value`.
        ((value as u128 * self.0 as u128 + (1 << (BITS - 1))) >> BITS) as u64
    }

    /// Returns whether an event of this probability happens, given a number that is uniform over all of
    /// `u64`.
    #[must_use]
    pub const fn happens(self, uniform: u64) -> bool {
        uniform >> (u64::BITS - BITS) < self.0
    }
}
