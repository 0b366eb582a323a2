//! Units: no number travels without its dimension.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A point in time: nanoseconds since an origin that only the world knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than everything: "no deadline".
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the time `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }
    /// Returns the nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// Returns how long this is after `earlier`; zero if it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest span.
    pub const MAX: Self = Self(u64::MAX);

    /// Returns `nanos` nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }
    /// Returns `micros` microseconds.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }
    /// Returns `millis` milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }
    /// Returns `secs` seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }
    /// Returns the span in nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// Returns the span in whole microseconds, rounded down.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }
    /// Returns the span in whole milliseconds, rounded down.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }
    /// Returns `self * by`, capped at [`Span::MAX`].
    #[must_use]
    pub const fn times(self, by: u64) -> Self {
        Self(self.0.saturating_mul(by))
    }
    /// Returns `self / by`.
    #[must_use]
    pub const fn over(self, by: u64) -> Self {
        Self(self.0 / by)
    }
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}
impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}
impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}
impl Sub for Span {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// A data rate in bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// Returns `bytes` bytes per second.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }
    /// Returns `bits` bits per second, rounded down to whole bytes.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits / 8)
    }
    /// Returns the rate in bytes per second.
    #[must_use]
    pub const fn as_bytes(self) -> u64 {
        self.0
    }
    /// Returns the rate in bits per second.
    #[must_use]
    pub const fn as_bits(self) -> u64 {
        self.0.saturating_mul(8)
    }
    /// Returns the time that `bytes` bytes take; [`Span::MAX`] at rate zero.
    #[must_use]
    pub fn time_for(self, bytes: u64) -> Span {
        if self.0 == 0 {
            return Span::MAX;
        }
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.0);
        Span(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
    /// Returns the bytes that pass in `span`.
    #[must_use]
    pub fn bytes_in(self, span: Span) -> u64 {
        let bytes = u128::from(self.0) * u128::from(span.0) / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
    /// Returns the rate of `bytes` bytes in `span`; zero if the span is zero.
    #[must_use]
    pub fn of(bytes: u64, span: Span) -> Self {
        let rate = (u128::from(bytes) * 1_000_000_000).checked_div(u128::from(span.0)).unwrap_or(0);
        Self(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n >= 1_000_000_000 => write!(f, "{}.{:02} s", n / 1_000_000_000, n / 10_000_000 % 100),
            n if n >= 1_000_000 => write!(f, "{}.{} ms", n / 1_000_000, n / 100_000 % 10),
            n => write!(f, "{} µs", n / 1_000),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_bits() {
            n if n >= 1_000_000_000 => write!(f, "{}.{:02} Gbit/s", n / 1_000_000_000, n / 10_000_000 % 100),
            n if n >= 1_000_000 => write!(f, "{}.{} Mbit/s", n / 1_000_000, n / 100_000 % 10),
            n => write!(f, "{} kbit/s", n / 1_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn spans_and_rates() {
        assert_eq!(Time::from_nanos(5).since(Time::from_nanos(9)), Span::ZERO);
        assert_eq!(Rate::from_bits(8_000_000).time_for(1_000_000), Span::from_secs(1));
        assert_eq!(Rate::from_bits(8_000_000).bytes_in(Span::from_millis(1)), 1_000);
        assert_eq!(Rate::of(10, Span::ZERO), Rate::from_bytes(0));
        assert_eq!(Rate::from_bytes(0).time_for(1), Span::MAX);
        assert_eq!(Time::NEVER + Span::MAX, Time::NEVER);
    }

    #[test]
    fn display_reads_like_speech() {
        assert_eq!(format!("{}", Rate::from_bits(93_400_000)), "93.4 Mbit/s");
        assert_eq!(format!("{}", Span::from_micros(1_540)), "1.5 ms");
    }
}
