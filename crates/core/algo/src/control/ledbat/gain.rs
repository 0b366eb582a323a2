//! The gain of LEDBAT++: how much of Reno's growth it takes (draft-irtf-iccrg-ledbat-plus-plus-06,
//! section 4.1).

use crate::Span;
use crate::softfloat::Real;

/// The longest queueing delay that it aims for, µs.
pub(super) const TARGET_US: u32 = 60_000;
/// G is not smaller than one over this.
const GAIN_DIVISOR_MAX: u32 = 16;

/// G, of the smallest RTT known.
pub(in super::super) fn gain(base_us: u32) -> Real {
    let divisor = (2 * TARGET_US).div_ceil(base_us.max(1)).clamp(1, GAIN_DIVISOR_MAX);
    Real::from_u64(u64::from(divisor)).inverse()
}

/// Microseconds in 32 bits; saturates.
pub(in super::super) fn micros(span: Span) -> u32 {
    u32::try_from(span.as_micros()).unwrap_or(u32::MAX)
}
