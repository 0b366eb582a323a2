//! Defines congestion windows (RFC 5681 section 2, RFC 6928 section 2) and changes of them.

use crate::softfloat::Real;

/// Holds a congestion window in packets as a fixed-point number with units of 2⁻⁴⁰ packets, so that the
/// increment 1/w is exact to 10⁻⁶ at a window of a million packets. A window is at most 2²³ packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window(pub(super) u64);

impl Window {
    /// The number of units in a packet.
    pub const ONE: u64 = 1 << 40;
    /// A window of zero packets.
    pub const ZERO: Self = Self(0);
    /// The largest window.
    pub const MAX: Self = Self(Self::ONE << 23);

    /// Returns a window of `n` whole packets.
    #[must_use]
    pub const fn packets(n: u32) -> Self {
        let n = n as u64;
        Self(if n > 1 << 23 { Self::MAX.0 } else { n * Self::ONE })
    }
    /// Returns a window of `n` units of 2⁻⁴⁰ packets.
    #[must_use]
    pub const fn from_units(n: u64) -> Self {
        Self(n)
    }
    /// Returns the window in units of 2⁻⁴⁰ packets.
    #[must_use]
    pub const fn units(self) -> u64 {
        self.0
    }
    /// Returns the number of whole packets, rounded down.
    #[must_use]
    pub const fn floor(self) -> u32 {
        (self.0 / Self::ONE) as u32
    }
    /// Returns the window as a real number of packets.
    #[must_use]
    pub const fn real(self) -> Real {
        Real::from_ratio(self.0, 40)
    }
    /// Converts a real number of packets to a window, to the nearest 2⁻⁴⁰. The result saturates at the range
    /// of the integer, which is beyond [`Window::MAX`].
    #[must_use]
    pub const fn from_real(packets: Real) -> Self {
        Self(packets.to_fixed(40))
    }
    /// Returns the window plus `packets`, at most [`Window::MAX`].
    #[must_use]
    pub fn grown(self, packets: Real) -> Self {
        Self(self.0.saturating_add(packets.to_fixed(40))).min(Self::MAX)
    }
    /// Returns the window minus `packets`, at least one packet.
    #[must_use]
    pub fn shrunk(self, packets: Real) -> Self {
        Self(self.0.saturating_sub(packets.to_fixed(40)).max(Self::ONE))
    }
    /// Returns half of the window.
    #[must_use]
    pub const fn half(self) -> Self {
        Self(self.0 >> 1)
    }
    /// Returns the window changed by `delta`, between one packet and [`Window::MAX`].
    #[must_use]
    pub fn adjusted_by(self, delta: WindowDelta) -> Self {
        let grown = self.grown(delta.increase);
        if delta.decrease.is_zero() { grown } else { grown.shrunk(delta.decrease) }
    }
    /// Returns the difference between this window and `other`; zero if `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// The initial window: 10 packets (RFC 6928 section 2).
pub const INITIAL_WINDOW: Window = Window::packets(10);

/// Describes a change of a window, in packets: `increase` − `decrease`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct WindowDelta {
    /// The packets to add.
    pub increase: Real,
    /// The packets to take away.
    pub decrease: Real,
}

impl WindowDelta {
    /// No change.
    pub const NONE: Self = Self { increase: Real::ZERO, decrease: Real::ZERO };

    /// Returns a change that adds `packets`.
    #[must_use]
    pub const fn increase(packets: Real) -> Self {
        Self { increase: packets, decrease: Real::ZERO }
    }

    /// Returns the change that leads from one window to another.
    #[must_use]
    pub const fn between(from: Window, to: Window) -> Self {
        Self { increase: to.saturating_sub(from).real(), decrease: from.saturating_sub(to).real() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows() {
        assert_eq!(Window::packets(u32::MAX), Window::MAX);
        assert_eq!(Window::MAX.grown(Real::MAX), Window::MAX);
        assert_eq!(Window::MAX.shrunk(Real::MAX), Window::packets(1));
        assert_eq!(Window::packets(3).half().floor(), 1);
        assert_eq!(Window::from_real(Window::packets(1_000_000).real()), Window::packets(1_000_000));
    }
}
