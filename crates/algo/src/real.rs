//! Non-negative real numbers in integers: a 32-bit mantissa with a binary exponent.
//!
//! Congestion control divides windows of 1 to 10⁶ packets by squared round-trip times of 10 µs to 10 s and
//! takes ratios of sums of that. Neither 64-bit fixed point nor the kernel's eBPF (no floating point, no
//! 128-bit multiplication) can do that directly; a mantissa with an exponent can, with plain 64-bit
//! multiplication and division. Every operation is rounded to nearest: its relative error is at most 2⁻³².
//! Nothing here panics, loops or allocates, and results are the same on every machine.

use core::ops::{Add, Div, Mul, Sub};

/// Bits of the mantissa.
const BITS: u32 = 32;
/// Exponents stay within ± this: larger values become [`Real::MAX`], smaller ones zero. Far outside anything
/// that is computed, far inside what an `i32` can add up.
const EXPONENT_MAX: i32 = 1 << 20;
/// The exponent of zero: below every other, so that the derived order is the numeric one.
const EXPONENT_ZERO: i32 = -(1 << 21);

/// A non-negative real number: `mantissa · 2^exponent`, where the mantissa has exactly 32 bits (2³¹ ≤
/// mantissa < 2³²) or is zero.
// Field order matters: the derived order compares exponents first, and mantissas are normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct Real {
    exponent: i32,
    mantissa: u64,
}

impl Default for Real {
    fn default() -> Self {
        Self::ZERO
    }
}

#[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
impl Real {
    /// Zero.
    pub const ZERO: Self = Self { exponent: EXPONENT_ZERO, mantissa: 0 };
    /// One.
    pub const ONE: Self = Self { exponent: 1 - BITS as i32, mantissa: 1 << (BITS - 1) };
    /// The largest value, about 2^(10⁶): what division by zero and overflow give.
    pub const MAX: Self = Self { exponent: EXPONENT_MAX, mantissa: (1 << BITS) - 1 };

    /// `mantissa · 2^exponent`, rounded to 32 bits, from any 64-bit mantissa.
    #[inline(always)]
    const fn normalised(mantissa: u64, exponent: i32) -> Self {
        if mantissa == 0 {
            return Self::ZERO;
        }
        let zeros = mantissa.leading_zeros();
        // At most 63, as the mantissa is not zero.
        let top = mantissa.wrapping_shl(zeros);
        let rounded = (top >> BITS) + ((top >> (BITS - 1)) & 1);
        // Rounding up all ones gives 2³²: one bit too long, and all zero but for the first.
        let carry = rounded >> BITS;
        let exponent =
            exponent.wrapping_add(BITS as i32).wrapping_sub(zeros as i32).wrapping_add(carry as i32);
        if exponent > EXPONENT_MAX {
            return Self::MAX;
        }
        if exponent < -EXPONENT_MAX {
            return Self::ZERO;
        }
        Self { exponent, mantissa: rounded >> carry }
    }

    /// `value`, to 32 significant bits.
    #[inline(always)]
    #[must_use]
    pub const fn from_u64(value: u64) -> Self {
        Self::normalised(value, 0)
    }

    /// `value / 2^shift`. A shift above 2¹⁶ counts as 2¹⁶.
    #[inline(always)]
    #[must_use]
    pub const fn from_ratio(value: u64, shift: u32) -> Self {
        let shift = if shift > 1 << 16 { 1 << 16 } else { shift as i32 };
        Self::normalised(value, -shift)
    }

    /// Whether this is zero.
    #[inline(always)]
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.mantissa == 0
    }

    /// The smaller one.
    #[inline(always)]
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        if other < self { other } else { self }
    }

    /// The larger one.
    #[inline(always)]
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        if other > self { other } else { self }
    }

    /// Half of it, exactly.
    #[inline(always)]
    #[must_use]
    pub const fn half(self) -> Self {
        Self::normalised(self.mantissa, self.exponent.wrapping_sub(1))
    }

    /// Its square.
    #[inline(always)]
    #[must_use]
    pub fn square(self) -> Self {
        self * self
    }

    /// `self · 2^shift` to the nearest integer (half rounds up); `u64::MAX` if that does not fit. A shift
    /// above 2¹⁶ counts as 2¹⁶.
    #[inline(always)]
    #[must_use]
    pub const fn to_fixed(self, shift: u32) -> u64 {
        let shift = if shift > 1 << 16 { 1 << 16 } else { shift as i32 };
        let by = self.exponent.wrapping_add(shift);
        if self.mantissa == 0 || by < -(BITS as i32) {
            0
        } else if by > 64 - BITS as i32 {
            u64::MAX
        } else if by >= 0 {
            self.mantissa.wrapping_shl(by as u32)
        } else {
            // 1 ≤ down ≤ 32: keep one bit more than needed, then round on it.
            let down = by.wrapping_neg() as u32;
            (self.mantissa.wrapping_shr(down.wrapping_sub(1)) + 1) >> 1
        }
    }
}

#[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
impl Add for Real {
    type Output = Self;
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        let (big, small) = if self < other { (other, self) } else { (self, other) };
        // Both below 2⁶³, so the sum fits. Exponents are bounded, so their difference does.
        let apart = big.exponent.wrapping_sub(small.exponent) as u32;
        let apart = if apart > 63 { 63 } else { apart };
        let low = (small.mantissa << (BITS - 1)).wrapping_shr(apart);
        Self::normalised(
            (big.mantissa << (BITS - 1)).wrapping_add(low),
            big.exponent.wrapping_sub(BITS as i32 - 1),
        )
    }
}

#[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
impl Sub for Real {
    type Output = Self;
    /// Zero if `other` is the larger one.
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        if self <= other {
            return Self::ZERO;
        }
        let apart = self.exponent.wrapping_sub(other.exponent) as u32;
        let apart = if apart > 63 { 63 } else { apart };
        let low = (other.mantissa << (BITS - 1)).wrapping_shr(apart);
        let high = self.mantissa << (BITS - 1);
        Self::normalised(high.wrapping_sub(low), self.exponent.wrapping_sub(BITS as i32 - 1))
    }
}

#[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
impl Mul for Real {
    type Output = Self;
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        // 32 bits times 32 bits fit in 64. Zero's exponent does not matter: a zero mantissa is zero.
        Self::normalised(
            self.mantissa.wrapping_mul(other.mantissa),
            self.exponent.wrapping_add(other.exponent),
        )
    }
}

#[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
impl Div for Real {
    type Output = Self;
    /// [`Real::MAX`] if `other` is zero, even for zero by zero.
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        // A 64-bit dividend by a 32-bit divisor: the quotient has 32 or 33 bits.
        match self.mantissa.wrapping_shl(BITS).checked_div(other.mantissa) {
            None => Self::MAX,
            Some(quotient) => Self::normalised(
                quotient,
                self.exponent.wrapping_sub(other.exponent).wrapping_sub(BITS as i32),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// What a float says the same number is.
    fn float(x: Real) -> f64 {
        x.mantissa as f64 * 2f64.powi(x.exponent)
    }

    fn close(x: Real, want: f64) {
        let got = float(x);
        assert!((got - want).abs() <= want.abs() * 2f64.powi(-30), "{got} is not {want}");
    }

    /// Numbers as they occur: 1..2⁶⁴ scaled by 2⁻¹⁰⁰..2⁰.
    fn reals() -> impl Strategy<Value = (Real, f64)> {
        (0..64u32, any::<u64>(), 0..100u32).prop_map(|(bits, value, shift)| {
            let value = (value | 1 << 63) >> bits;
            (Real::from_ratio(value, shift), value as f64 * 2f64.powi(-(shift as i32)))
        })
    }

    #[test]
    fn corners() {
        let (zero, one, max) = (Real::ZERO, Real::ONE, Real::MAX);
        let two = Real::from_u64(2);
        assert_eq!(Real::from_u64(1), one);
        assert_eq!(Real::from_u64(0), zero);
        assert_eq!(Real::default(), zero);
        assert_eq!(Real::from_ratio(3, 1).to_fixed(0), 2, "half rounds up");
        assert_eq!(Real::from_ratio(5, 2).to_fixed(0), 1);
        assert_eq!(Real::from_ratio(1, 1).to_fixed(0), 1);
        assert_eq!(Real::from_ratio(1, 2).to_fixed(0), 0);
        assert_eq!(Real::from_ratio(1, u32::MAX).to_fixed(u32::MAX), 1);
        assert_eq!(one / zero, max);
        assert_eq!(zero / zero, max);
        assert_eq!(zero / one, zero);
        assert_eq!(max * max, max);
        assert_eq!(max + max, max);
        assert_eq!(max / max, one);
        assert_eq!(one / max / max, zero);
        assert_eq!(max * zero, zero);
        assert_eq!(zero + one, one);
        assert_eq!(one - one, zero);
        assert_eq!(one - two, zero);
        assert_eq!(two - one, one);
        assert_eq!(two.half(), one);
        assert_eq!(max.to_fixed(40), u64::MAX);
        assert_eq!(zero.to_fixed(40), 0);
        assert_eq!(Real::from_u64(u64::MAX).to_fixed(0), u64::MAX, "rounds up to 2⁶⁴, which saturates");
        assert_eq!(Real::from_ratio(u64::MAX, 64), one);
        assert!(zero < one && one < two && two < max && zero < Real::from_ratio(1, 1 << 16));
        assert_eq!((one.min(two), one.max(two)), (one, two));
        assert!(zero.is_zero() && !one.is_zero());
    }

    proptest! {
        #[test]
        fn agrees_with_floats((a, x) in reals(), (b, y) in reals()) {
            close(a, x);
            close(a + b, x + y);
            close(a * b, x * y);
            close(a / b, x / y);
            close(a.square(), x * x);
            close(a.half(), x / 2.0);
            let (fa, fb) = (float(a), float(b));
            prop_assert_eq!(a.cmp(&b), fa.partial_cmp(&fb).unwrap());
            // Subtraction is exact in its arguments' last place: compare against the larger one.
            let want = (fa - fb).max(0.0);
            prop_assert!((float(a - b) - want).abs() <= fa * 2f64.powi(-30));
            prop_assert_eq!(a + b, b + a);
            prop_assert_eq!(a * b, b * a);
        }

        #[test]
        fn fixed_point_there_and_back((a, x) in reals(), shift in 0..64u32) {
            let want = x * 2f64.powi(shift as i32);
            let got = a.to_fixed(shift);
            if want >= 2f64.powi(64) {
                prop_assert_eq!(got, u64::MAX);
            } else {
                // Rounded twice: to 32 bits, then to an integer.
                let error = (got as f64 - want).abs();
                prop_assert!(error <= want * 2f64.powi(-31) + 0.500_001, "{} is not {}", got, want);
            }
        }

        #[test]
        fn anything_goes(values in prop::collection::vec((any::<u64>(), any::<u32>(), 0..6u8), 1..40)) {
            // No panic, always normalised, whatever the order of operations.
            let mut x = Real::ONE;
            let mut seen = Vec::new();
            for (value, shift, op) in values {
                let y = Real::from_ratio(value, shift);
                x = match op {
                    0 => x + y,
                    1 => x - y,
                    2 => x * y,
                    3 => x / y,
                    4 => x.square(),
                    _ => Real::MAX / (x + y),
                };
                prop_assert!(x.is_zero() && x == Real::ZERO || x.mantissa >> 31 == 1);
                prop_assert!(x <= Real::MAX);
                seen.push(x.to_fixed(shift));
            }
        }
    }
}
