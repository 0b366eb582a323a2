//! Non-negative real numbers in integers: a 32-bit mantissa with a binary exponent.
//!
//! Congestion control divides windows of 1 to 10⁶ packets by squared round-trip times of 10 µs to 10 s, and
//! takes ratios of sums of these quotients. Neither 64-bit fixed point nor the kernel's eBPF (no floating
//! point, no 128-bit multiplication) can do that directly. A mantissa with an exponent can, with plain 64-bit
//! multiplication and division. Every operation is rounded to nearest: its relative error is at most 2⁻³². No
//! operation panics, loops or allocates, and results are the same on every machine.

use core::cmp::Ordering;
use core::fmt;
use core::ops::{Add, Div, Mul, Sub};

/// Bits of the mantissa.
const BITS: u32 = 32;
/// The largest magnitude of an exponent: larger values become [`Real::MAX`], smaller ones zero. It is far
/// outside anything that is computed, and far inside the sums that an `i32` can hold.
const EXPONENT_MAX: i32 = 1 << 20;
/// The exponent of zero. It is below every other, so that the order of exponents is the order of the numbers.
/// It is so far below that any product or quotient of zero is out of range, and so becomes zero without a
/// test.
const EXPONENT_ZERO: i32 = -(1 << 22);

/// A non-negative real number: `mantissa · 2^exponent`, where the mantissa has exactly 32 bits (2³¹ ≤
/// mantissa < 2³²) or is zero. The exponent is in the upper half, so that the bits, compared as signed
/// numbers, have the order of the real numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Real(u64);

/// An operation on the bits of numbers. In the kernel it is a function of its own: the verifier examines it
/// once, for any argument, and not again at each call. Elsewhere it is inlined.
macro_rules! operation {
    ($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) -> u64 $body:block) => {
        $(#[$doc])*
        #[cfg(target_arch = "bpf")]
        #[unsafe(no_mangle)]
        #[inline(never)]
        const extern "C" fn $name($($arg: $type),*) -> u64 $body

        $(#[$doc])*
        #[cfg(not(target_arch = "bpf"))]
        #[inline(always)]
        const fn $name($($arg: $type),*) -> u64 $body
    };
}

const fn pack(exponent: i32, mantissa: u32) -> u64 {
    ((exponent as u32 as u64) << BITS) | mantissa as u64
}

const fn exponent(bits: u64) -> i32 {
    (bits >> BITS) as i32
}

const fn mantissa(bits: u64) -> u64 {
    bits & u32::MAX as u64
}

/// Returns `mantissa · 2^exponent`, rounded to 32 bits, for any 64-bit mantissa. A mantissa of zero needs an
/// exponent like that of zero.
const fn normalised(mantissa: u64, exponent: i32) -> u64 {
    let zeros = mantissa.leading_zeros();
    // The number is 64 only for zero, where it does not matter.
    let top = mantissa.wrapping_shl(zeros);
    rounded(top, exponent.wrapping_sub(zeros as i32))
}

/// Rounds a mantissa whose first bit is set, or that is zero, to 32 bits. Returns `top · 2^exponent`.
const fn rounded(top: u64, exponent: i32) -> u64 {
    let rounded = (top >> BITS) + ((top >> (BITS - 1)) & 1);
    // Rounding up all ones gives 2³²: one bit too long, and all bits zero except the first.
    let carry = rounded >> BITS;
    let exponent = exponent.wrapping_add(BITS as i32).wrapping_add(carry as i32);
    // One test checks both ends of the range: below it, the sum wraps to a large number.
    if exponent.wrapping_add(EXPONENT_MAX) as u32 > 2 * EXPONENT_MAX as u32 {
        return if exponent > 0 { Real::MAX.0 } else { Real::ZERO.0 };
    }
    pack(exponent, (rounded >> carry) as u32)
}

/// Returns how far the smaller number's mantissa has to be shifted. Exponents are bounded, so their
/// difference fits.
const fn exponent_gap(big: u64, small: u64) -> u32 {
    let exponent_gap = exponent(big).wrapping_sub(exponent(small)) as u32;
    if exponent_gap > 63 { 63 } else { exponent_gap }
}

operation! {
    /// Returns `value / 2^shift`. A shift above 2¹⁶ counts as 2¹⁶.
    fn real_of(value: u64, shift: u32) -> u64 {
        let shift = if shift > 1 << 16 { 1 << 16 } else { shift as i32 };
        normalised(value, if value == 0 { EXPONENT_ZERO } else { -shift })
    }
}

operation! {
    /// Returns the sum.
    fn real_add(a: u64, b: u64) -> u64 {
        let (big, small) = if (a as i64) < b as i64 { (b, a) } else { (a, b) };
        // Both terms are below 2⁶³, so the sum fits.
        let low = (mantissa(small) << (BITS - 1)).wrapping_shr(exponent_gap(big, small));
        let high = mantissa(big) << (BITS - 1);
        normalised(high.wrapping_add(low), exponent(big).wrapping_sub(BITS as i32 - 1))
    }
}

operation! {
    /// Returns the difference; zero if `b` is not the smaller number.
    fn real_sub(a: u64, b: u64) -> u64 {
        if a as i64 <= b as i64 {
            return Real::ZERO.0;
        }
        let low = (mantissa(b) << (BITS - 1)).wrapping_shr(exponent_gap(a, b));
        let high = mantissa(a) << (BITS - 1);
        normalised(high.wrapping_sub(low), exponent(a).wrapping_sub(BITS as i32 - 1))
    }
}

operation! {
    /// Returns the product.
    fn real_mul(a: u64, b: u64) -> u64 {
        // 32 bits times 32 bits fit in 64, and leave at most the first bit free.
        let product = mantissa(a).wrapping_mul(mantissa(b));
        let free = (product >> 63) ^ 1;
        rounded(product << free, exponent(a).wrapping_add(exponent(b)).wrapping_sub(free as i32))
    }
}

operation! {
    /// Returns the quotient; [`Real::MAX`] if `b` is zero, even for zero by zero.
    fn real_div(a: u64, b: u64) -> u64 {
        // A 64-bit dividend by a 32-bit divisor: the quotient has 32 or 33 bits.
        match mantissa(a).wrapping_shl(BITS).checked_div(mantissa(b)) {
            None => Real::MAX.0,
            Some(quotient) => {
                normalised(quotient, exponent(a).wrapping_sub(exponent(b)).wrapping_sub(BITS as i32))
            }
        }
    }
}

operation! {
    /// Returns the larger number.
    fn real_max(a: u64, b: u64) -> u64 {
        if a as i64 >= b as i64 { a } else { b }
    }
}

operation! {
    /// Returns the smaller number.
    fn real_min(a: u64, b: u64) -> u64 {
        if a as i64 <= b as i64 { a } else { b }
    }
}

operation! {
    /// Returns one if `a` is at most `b`, else zero. The result is a number, not a condition, because the
    /// verifier would follow both sides of each condition in each turn of a loop.
    fn word_at_most(a: u64, b: u64) -> u64 {
        (a <= b) as u64
    }
}

/// Returns one if `a` is at most `b`, else zero; in the kernel without a branch.
#[inline]
pub(crate) const fn at_most(a: u64, b: u64) -> u64 {
    word_at_most(a, b)
}

operation! {
    /// Returns `a · 2^shift` as the nearest integer (half rounds up); `u64::MAX` if that does not fit. A
    /// shift above 2¹⁶ counts as 2¹⁶.
    fn real_fixed(a: u64, shift: u32) -> u64 {
        let shift = if shift > 1 << 16 { 1 << 16 } else { shift as i32 };
        let by = exponent(a).wrapping_add(shift);
        if mantissa(a) == 0 || by < -(BITS as i32) {
            0
        } else if by > 64 - BITS as i32 {
            u64::MAX
        } else if by >= 0 {
            mantissa(a).wrapping_shl(by as u32)
        } else {
            // 1 ≤ down ≤ 32: keep one bit more than needed, then round on it.
            let down = by.wrapping_neg() as u32;
            (mantissa(a).wrapping_shr(down.wrapping_sub(1)) + 1) >> 1
        }
    }
}

impl fmt::Debug for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}·2^{}", mantissa(self.0), exponent(self.0))
    }
}

// This is one comparison instead of two with a branch between them: mantissas are normalised, so a larger
// exponent is a larger number.
#[expect(clippy::inline_always, reason = "as below; and loops over members stay free of branches")]
impl Ord for Real {
    #[inline(always)]
    fn cmp(&self, other: &Self) -> Ordering {
        (self.0 as i64).cmp(&(other.0 as i64))
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
        (self.0 as i64) < other.0 as i64
    }
    #[inline(always)]
    fn le(&self, other: &Self) -> bool {
        self.0 as i64 <= other.0 as i64
    }
    #[inline(always)]
    fn gt(&self, other: &Self) -> bool {
        self.0 as i64 > other.0 as i64
    }
    #[inline(always)]
    fn ge(&self, other: &Self) -> bool {
        self.0 as i64 >= other.0 as i64
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
    pub const ZERO: Self = Self(pack(EXPONENT_ZERO, 0));
    /// One.
    pub const ONE: Self = Self(pack(1 - BITS as i32, 1 << (BITS - 1)));
    /// The largest value, about 2^(10⁶), which division by zero and overflow return.
    pub const MAX: Self = Self(pack(EXPONENT_MAX, u32::MAX));

    /// Returns `value`, to 32 significant bits.
    #[inline(always)]
    #[must_use]
    pub const fn from_u64(value: u64) -> Self {
        Self::from_ratio(value, 0)
    }

    /// Returns `value / 2^shift`. A shift above 2¹⁶ counts as 2¹⁶.
    #[inline(always)]
    #[must_use]
    pub const fn from_ratio(value: u64, shift: u32) -> Self {
        Self(real_of(value, shift))
    }

    /// Whether this is zero.
    #[inline(always)]
    #[must_use]
    pub const fn is_zero(self) -> bool {
        mantissa(self.0) == 0
    }

    /// Returns the smaller number.
    #[inline(always)]
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self(real_min(self.0, other.0))
    }

    /// Returns the larger number.
    #[inline(always)]
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self(real_max(self.0, other.0))
    }

    /// Returns one if this number is at most `other`, else zero; in the kernel without a branch.
    #[inline(always)]
    #[must_use]
    pub(crate) const fn at_most(self, other: Self) -> u64 {
        // Flipping the signs compares signed numbers.
        at_most(self.0 ^ (1 << 63), other.0 ^ (1 << 63))
    }

    /// Returns half of the number, exactly.
    #[inline(always)]
    #[must_use]
    pub const fn half(self) -> Self {
        // Only the exponent changes, unless it leaves the range.
        Self(rounded(mantissa(self.0) << BITS, exponent(self.0).wrapping_sub(BITS as i32 + 1)))
    }

    /// Returns `1 / self`; [`Real::MAX`] for zero.
    #[inline(always)]
    #[must_use]
    pub fn inverse(self) -> Self {
        Self::ONE / self
    }

    /// Returns the cube root, to about 2⁻³⁰. A first guess from the exponent is off by a factor of 2 at most;
    /// six steps of Newton's method then leave an error below 2⁻⁵⁰ of their own.
    #[inline(always)]
    #[must_use]
    pub fn cbrt(self) -> Self {
        if self.is_zero() {
            return Self::ZERO;
        }
        // 2^ceil(e/3), where 2^(e−1) ≤ self < 2^e.
        let e = exponent(self.0).wrapping_add(BITS as i32);
        let up = e.wrapping_add(2).div_euclid(3);
        let y = Self(normalised(1, up));
        let third = Self::ONE / Self::from_u64(3);
        // y ← (2y + self/y²)/3
        let step = |y: Self| (y + y + self / y.square()) * third;
        step(step(step(step(step(step(y))))))
    }

    /// Returns the square.
    #[inline(always)]
    #[must_use]
    pub fn square(self) -> Self {
        self * self
    }

    /// Returns `self · 2^shift` as the nearest integer (half rounds up); `u64::MAX` if that does not fit. A
    /// shift above 2¹⁶ counts as 2¹⁶.
    #[inline(always)]
    #[must_use]
    pub const fn to_fixed(self, shift: u32) -> u64 {
        real_fixed(self.0, shift)
    }
}

#[expect(clippy::inline_always, reason = "as above")]
impl Add for Real {
    type Output = Self;
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self(real_add(self.0, other.0))
    }
}

#[expect(clippy::inline_always, reason = "as above")]
impl Sub for Real {
    type Output = Self;
    /// Returns the difference; zero if `other` is the larger number.
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self(real_sub(self.0, other.0))
    }
}

#[expect(clippy::inline_always, reason = "as above")]
impl Mul for Real {
    type Output = Self;
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Self(real_mul(self.0, other.0))
    }
}

#[expect(clippy::inline_always, reason = "as above")]
impl Div for Real {
    type Output = Self;
    /// Returns the quotient; [`Real::MAX`] if `other` is zero, even for zero by zero.
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        Self(real_div(self.0, other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// Returns the number as a float.
    fn float(x: Real) -> f64 {
        mantissa(x.0) as f64 * 2f64.powi(exponent(x.0))
    }

    fn close(x: Real, want: f64) {
        let got = float(x);
        assert!((got - want).abs() <= want.abs() * 2f64.powi(-30), "{got} is not {want}");
    }

    /// Generates numbers as they occur: 1..2⁶⁴ scaled by 2⁻¹⁰⁰..2⁰.
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
                // The number is rounded twice: to 32 bits, then to an integer.
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
                prop_assert!(x.is_zero() && x == Real::ZERO || mantissa(x.0) >> 31 == 1);
                prop_assert!(x <= Real::MAX);
                seen.push(x.to_fixed(shift));
            }
        }
    }
}
