//! Collects the numbers that LEDBAT++ needs of its siblings: how many flows they are worth, and when the
//! group slowed down (draft-irtf-iccrg-ledbat-plus-plus-06, section 4.4, applied to a group).

use super::super::{Group, SubflowStats};
use crate::softfloat::Real;
use crate::{Span, Time};

/// The binary places of the unit for times in 32 bits, 2²⁰ ns: such times wrap around after 52 days.
pub(super) const UNIT_PLACES: u32 = 20;

/// Returns a time in 32 bits; never zero.
pub(super) const fn kept(time: Time) -> u32 {
    let units = (time.as_nanos() >> UNIT_PLACES) as u32;
    if units == 0 { 1 } else { units }
}

/// Returns the time from `earlier` to `later`, both in 32 bits; zero if `later` is not later.
pub(super) const fn since(later: u32, earlier: u32) -> Span {
    let units = later.wrapping_sub(earlier);
    Span::from_nanos(if units > u32::MAX / 2 { 0 } else { (units as u64) << UNIT_PLACES })
}

pub(super) const fn is_after(later: u32, earlier: u32) -> bool {
    since(later, earlier).as_nanos() > 0
}

/// Holds the numbers collected from the siblings.
pub(super) struct Siblings {
    /// The number n of flows that the group is worth.
    pub(super) flows: Real,
    /// The longest RTT.
    pub(super) longest: Span,
    /// Whether this subflow has the longest RTT among the subflows that have left slow start.
    pub(super) leads: bool,
    /// The time of the group's newest slowdown, as [kept].
    pub(super) began: u32,
}

impl Siblings {
    pub(super) fn of(mine: &SubflowStats, group: &Group<'_>) -> Self {
        let me = Group::mine(mine);
        let (sum, max) = group.fold(me, (Real::ZERO, Real::ZERO), |(sum, max), member| {
            let rate = member.w * member.inv_rtt;
            (sum + rate, max.max(rate))
        });
        let flows = if max.is_zero() { Real::ONE } else { (sum / max).max(Real::ONE) };
        let began = kept(mine.phase_at);
        let mut siblings = Self { flows, longest: mine.srtt, leads: true, began };
        for member in group.current(*mine).filter(|member| member.srtt > Span::ZERO) {
            siblings.longest = siblings.longest.max(member.srtt);
            siblings.leads &= member.slow_start || mine.srtt >= member.srtt;
            let began = kept(member.phase_at);
            siblings.began = if is_after(began, siblings.began) { began } else { siblings.began };
        }
        siblings
    }
}
