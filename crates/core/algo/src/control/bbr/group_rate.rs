//! Measures the rate of a whole group and bounds the rate of a coupled path by it. This is ours;
//! draft-ietf-ccwg-bbr, section 5.5.3, has the filter of one flow.
//!
//! The largest sample of a path is above its mean by chance, the more so the fewer packets the path has. The
//! sum of these maxima would be more than the rate of one flow. So a path takes at most its share of the
//! largest sum.

use super::super::{Group, MEMBERS_MAX, SubflowStats, Window};
use super::delivery::Sample;
use crate::Span;
use crate::softfloat::Real;

/// The exponent of the weight: a new share weighs one in 2^3.
const SHARE_PLACES: u32 = 3;

/// Holds the group's delivery rate and this path's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupRate {
    /// The last sample of this path, in packets a nanosecond.
    latest: Real,
    /// The largest sums of the probing cycle before and of this cycle.
    max: [Real; 2],
    /// The smoothed share of this path; zero before the first sample with siblings.
    share: Real,
}

impl GroupRate {
    pub(super) const NEW: Self = Self { latest: Real::ZERO, max: [Real::ZERO; 2], share: Real::ZERO };

    /// Notes a sample of this path.
    pub(super) fn sample(&mut self, sample: &Sample, group: &Group<'_>) {
        self.latest = sample.rate;
        if group.is_alone() {
            *self = Self { latest: sample.rate, ..Self::NEW };
            return;
        }
        if sample.is_limited() {
            return;
        }
        let siblings = group.members.iter().take(MEMBERS_MAX).enumerate().filter(|(i, _)| *i != group.me);
        let total = siblings.fold(sample.rate, |sum, (_, member)| sum + rate(member));
        self.max[1] = self.max[1].max(total);
        let (now, weight) = (sample.rate / total, Real::from_ratio(1, SHARE_PLACES));
        self.share = if self.share.is_zero() { now } else { self.share - self.share * weight + now * weight };
    }

    /// Ends a probing cycle.
    pub(super) const fn next_cycle(&mut self) {
        self.max = [self.max[1], Real::ZERO];
    }

    /// Returns the rate of this path, given the largest rate it measured itself.
    pub(super) fn bound(&self, own: Real) -> Real {
        if self.share.is_zero() { own } else { own.min(self.max[0].max(self.max[1]) * self.share) }
    }

    /// Returns the number of packets of a round trip, from which siblings compute this path's rate.
    pub(super) fn published(&self, srtt: Span) -> Window {
        Window::from_real(self.latest * Real::from_u64(srtt.as_nanos()))
    }
}

/// Returns the last rate of a sibling; zero if the sibling does not count.
fn rate(member: &SubflowStats) -> Real {
    if member.srtt == Span::ZERO {
        return Real::ZERO;
    }
    member.peak.real() / Real::from_u64(member.srtt.as_nanos())
}
