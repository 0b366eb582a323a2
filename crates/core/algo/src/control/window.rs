//! Congestion windows (RFC 5681 section 2, RFC 6928 section 2), and how they move.

use crate::softfloat::Real;

/// A congestion window in packets, fixed point: 2⁻⁴⁰ packets a unit, so that the increment 1/w is exact to
/// 10⁻⁶ at a window of a million packets. At most 2²³ packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window(pub(super) u64);

impl Window {
    /// Units a packet.
    pub const ONE: u64 = 1 << 40;
    /// None.
    pub const ZERO: Self = Self(0);
    /// The largest window.
    pub const MAX: Self = Self(Self::ONE << 23);

    /// `n` whole packets.
    #[must_use]
    pub const fn packets(n: u32) -> Self {
        let n = n as u64;
        Self(if n > 1 << 23 { Self::MAX.0 } else { n * Self::ONE })
    }
    /// `n` units.
    #[must_use]
    pub const fn from_units(n: u64) -> Self {
        Self(n)
    }
    /// How many units it is.
    #[must_use]
    pub const fn units(self) -> u64 {
        self.0
    }
    /// Whole packets, rounded down.
    #[must_use]
    pub const fn floor(self) -> u32 {
        (self.0 / Self::ONE) as u32
    }
    /// As a real number of packets.
    #[must_use]
    pub const fn real(self) -> Real {
        Real::from_ratio(self.0, 40)
    }
    /// A real number of packets as a window, to the nearest 2⁻⁴⁰; saturates, beyond [`Window::MAX`] too.
    #[must_use]
    pub const fn from_real(packets: Real) -> Self {
        Self(packets.to_fixed(40))
    }
    /// Larger by `packets`, up to [`Window::MAX`].
    #[must_use]
    pub fn grown(self, packets: Real) -> Self {
        Self(self.0.saturating_add(packets.to_fixed(40))).min(Self::MAX)
    }
    /// Smaller by `packets`, but at least one packet.
    #[must_use]
    pub fn shrunk(self, packets: Real) -> Self {
        Self(self.0.saturating_sub(packets.to_fixed(40)).max(Self::ONE))
    }
    /// Half of it.
    #[must_use]
    pub const fn half(self) -> Self {
        Self(self.0 >> 1)
    }
    /// Adjusted by `delta`, within one packet and [`Window::MAX`].
    #[must_use]
    pub fn adjusted_by(self, delta: WindowDelta) -> Self {
        let grown = self.grown(delta.increase);
        if delta.decrease.is_zero() { grown } else { grown.shrunk(delta.decrease) }
    }
    /// By how much this is more than `other`; zero if it is not.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// The initial window: 10 packets (RFC 6928 section 2).
pub const INITIAL_WINDOW: Window = Window::packets(10);

/// How a window is to change, in packets: by `increase` − `decrease`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct WindowDelta {
    /// Packets to add.
    pub increase: Real,
    /// Packets to take away.
    pub decrease: Real,
}

impl WindowDelta {
    /// None.
    pub const NONE: Self = Self { increase: Real::ZERO, decrease: Real::ZERO };

    /// `packets` more.
    #[must_use]
    pub const fn increase(packets: Real) -> Self {
        Self { increase: packets, decrease: Real::ZERO }
    }

    /// That from one window to another.
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
