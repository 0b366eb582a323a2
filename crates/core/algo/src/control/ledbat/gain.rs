//! Computes the gain of LEDBAT++, its part of Reno's growth (draft-irtf-iccrg-ledbat-plus-plus-06, section
//! 4.1).

use crate::Span;
use crate::softfloat::Real;

/// The longest target for the queueing delay, in µs.
pub(super) const TARGET_US: u32 = 60_000;
/// The largest divisor in G, which is at least one over this.
const GAIN_DIVISOR_MAX: u32 = 16;

/// Returns G for the smallest RTT known, in µs.
pub(in super::super) fn gain(base_us: u32) -> Real {
    let divisor = (2 * TARGET_US).div_ceil(base_us.max(1)).clamp(1, GAIN_DIVISOR_MAX);
    Real::from_u64(u64::from(divisor)).inverse()
}

/// Returns a span as microseconds in 32 bits; saturates.
pub(in super::super) fn micros(span: Span) -> u32 {
    u32::try_from(span.as_micros()).unwrap_or(u32::MAX)
}
