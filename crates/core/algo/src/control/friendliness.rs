//! Computes NMCC's friendliness factor m² (Y. Thomas, dissertation, section 4.2.2, equations (4.5) and
//! (4.7)). A subflow grows m² times more slowly than TCP, so that its group grows as one TCP on the best of
//! its paths.

use super::{Group, MEMBERS_MAX, SubflowStats, Window};
use crate::Span;
use crate::softfloat::Real;

/// Returns m² of equation (4.7).
pub(super) fn friendliness(mine: &SubflowStats, group: &Group<'_>) -> Real {
    if mine.srtt == Span::ZERO {
        return Real::from_u64(group.members.len().min(MEMBERS_MAX) as u64).max(Real::ONE);
    }
    let mut sums = (Real::ZERO, Real::ZERO);
    for (i, member) in group.members.iter().take(MEMBERS_MAX).enumerate() {
        let omega = omega(if i == group.me { mine } else { member });
        sums = (sums.0 + omega, sums.1.max(omega));
    }
    let (sum, max) = sums;
    // Without members the quotient would be huge.
    if max.is_zero() { Real::ONE } else { (sum / max).max(Real::ONE) }
}

/// Returns Ω of equation (4.5); zero for a member without an RTT.
#[inline(always)]
#[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
pub(super) fn omega(member: &SubflowStats) -> Real {
    // Select values instead of skipping members: the kernel verifies a loop cheaply if all turns are alike.
    let w = if member.slow_start { member.cwnd } else { Window::packets(1) };
    let w = if member.srtt == Span::ZERO { Window::ZERO } else { w };
    w.real() / Real::from_u64(member.srtt.as_nanos().max(1)).square()
}
