//! Non-negative real numbers in integers: a 32-bit mantissa with a binary exponent.
//!
//! Congestion control divides windows of 1 to 10⁶ packets by squared round-trip times of 10 µs to 10 s and
//! takes ratios of sums of that. Neither 64-bit fixed point nor the kernel's eBPF (no floating point, no
//! 128-bit multiplication) can do that directly; a mantissa with an exponent can, with plain 64-bit
//! multiplication and division. Every operation is rounded to nearest: its relative error is at most 2⁻³².
//! Nothing here panics, loops or allocates, and results are the same on every machine.

use core::cmp::Ordering;
use core::ops::{Add, Div, Mul, Sub};

/// Bits of the mantissa.
const BITS: u32 = 32;
/// Exponents stay within ± this: larger values become [`Real::MAX`], smaller ones zero. Far outside anything
/// that is computed, far inside what an `i32` can add up.
const EXPONENT_MAX: i32 = 1 << 20;
/// The exponent of zero: below every other, so that the order of exponents is that of the numbers, and so far
/// below that any product or quotient of zero is out of range, which is to say zero, without being asked for.
const EXPONENT_ZERO: i32 = -(1 << 22);

/// A non-negative real number: `mantissa · 2^exponent`, where the mantissa has exactly 32 bits (2³¹ ≤
/// mantissa < 2³²) or is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Real {
    exponent: i32,
    mantissa: u32,
}

// One comparison instead of two with a branch between them: mantissas are normalised, so a larger exponent is
// a larger number.
#[expect(clippy::inline_always, reason = "as below; and loops over members stay free of branches")]
impl Ord for Real {
    #[inline(always)]
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

#[expect(clippy::inline_always, reason = "as above")]
impl PartialOrd for Real {
    #[inline(always)]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
    #[inline(always)]
    fn lt(&self, other: &Self) -> bool {
        self.key() < other.key()
    }
    #[inline(always)]
    fn le(&self, other: &Self) -> bool {
        self.key() <= other.key()
    }
    #[inline(always)]
    fn gt(&self, other: &Self) -> bool {
        self.key() > other.key()
    }
    #[inline(always)]
    fn ge(&self, other: &Self) -> bool {
        self.key() >= other.key()
    }
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
    pub const MAX: Self = Self { exponent: EXPONENT_MAX, mantissa: u32::MAX };

    /// In the order of the numbers.
    #[inline(always)]
    const fn key(self) -> i64 {
        ((self.exponent as i64) << BITS) | self.mantissa as i64
    }

    /// `mantissa · 2^exponent`, rounded to 32 bits, from any 64-bit mantissa; zero only with an exponent like
    /// zero's.
    #[inline(always)]
    const fn normalised(mantissa: u64, exponent: i32) -> Self {
        let zeros = mantissa.leading_zeros();
        // 64 only for zero, where it does not matter.
        let top = mantissa.wrapping_shl(zeros);
        Self::rounded(top, exponent.wrapping_sub(zeros as i32))
    }

    /// The same for a mantissa whose first bit is set, or that is zero.
    #[inline(always)]
    const fn rounded(top: u64, exponent: i32) -> Self {
        let rounded = (top >> BITS) + ((top >> (BITS - 1)) & 1);
        // Rounding up all ones gives 2³²: one bit too long, and all zero but for the first.
        let carry = rounded >> BITS;
        let exponent = exponent.wrapping_add(BITS as i32).wrapping_add(carry as i32);
        // In range, checked at once: below it, this wraps to something large.
        if exponent.wrapping_add(EXPONENT_MAX) as u32 > 2 * EXPONENT_MAX as u32 {
            return if exponent > 0 { Self::MAX } else { Self::ZERO };
        }
        Self { exponent, mantissa: (rounded >> carry) as u32 }
    }

    /// `value`, to 32 significant bits.
    #[inline(always)]
    #[must_use]
    pub const fn from_u64(value: u64) -> Self {
        Self::from_ratio(value, 0)
    }

    /// `value / 2^shift`. A shift above 2¹⁶ counts as 2¹⁶.
    #[inline(always)]
    #[must_use]
    pub const fn from_ratio(value: u64, shift: u32) -> Self {
        let shift = if shift > 1 << 16 { 1 << 16 } else { shift as i32 };
        Self::normalised(value, if value == 0 { EXPONENT_ZERO } else { -shift })
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
        Self::normalised(self.mantissa as u64, self.exponent.wrapping_sub(1))
    }

    /// `1 / self`; [`Real::MAX`] for zero.
    #[inline(always)]
    #[must_use]
    pub fn inverse(self) -> Self {
        Self::ONE / self
    }

    /// Its cube root, to about 2⁻³⁰: a first guess from the exponent and six steps of Newton's method, which
    /// from the most that the guess can be off (a factor of 2) leave an error below 2⁻⁵⁰ of their own.
    #[inline(always)]
    #[must_use]
    pub fn cbrt(self) -> Self {
        if self.is_zero() {
            return Self::ZERO;
        }
        // 2^ceil(e/3), where 2^(e−1) ≤ self < 2^e.
        let e = self.exponent.wrapping_add(BITS as i32);
        let up = e.wrapping_add(2).div_euclid(3);
        let y = Self::normalised(1, up);
        let third = Self::ONE / Self::from_u64(3);
        // y ← (2y + self/y²)/3
        let step = |y: Self| (y + y + self / y.square()) * third;
        step(step(step(step(step(step(y))))))
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
            (self.mantissa as u64).wrapping_shl(by as u32)
        } else {
            // 1 ≤ down ≤ 32: keep one bit more than needed, then round on it.
            let down = by.wrapping_neg() as u32;
            ((self.mantissa as u64).wrapping_shr(down.wrapping_sub(1)) + 1) >> 1
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
        let low = (u64::from(small.mantissa) << (BITS - 1)).wrapping_shr(apart);
        Self::normalised(
            (u64::from(big.mantissa) << (BITS - 1)).wrapping_add(low),
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
        let low = (u64::from(other.mantissa) << (BITS - 1)).wrapping_shr(apart);
        let high = u64::from(self.mantissa) << (BITS - 1);
        Self::normalised(high.wrapping_sub(low), self.exponent.wrapping_sub(BITS as i32 - 1))
    }
}

#[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
impl Mul for Real {
    type Output = Self;
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        // 32 bits times 32 bits fit in 64, and leave the first bit free at most.
        let product = u64::from(self.mantissa).wrapping_mul(u64::from(other.mantissa));
        let free = (product >> 63) ^ 1;
        Self::rounded(product << free, self.exponent.wrapping_add(other.exponent).wrapping_sub(free as i32))
    }
}

#[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
impl Div for Real {
    type Output = Self;
    /// [`Real::MAX`] if `other` is zero, even for zero by zero.
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        // A 64-bit dividend by a 32-bit divisor: the quotient has 32 or 33 bits.
        match u64::from(self.mantissa).wrapping_shl(BITS).checked_div(u64::from(other.mantissa)) {
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
        assert_eq!(zero.cbrt(), zero);
        close(Real::from_u64(27).cbrt(), 3.0);
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
            close(a.inverse(), 1.0 / x);
            close(a.cbrt(), x.cbrt());
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
