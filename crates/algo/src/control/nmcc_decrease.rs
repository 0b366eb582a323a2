//! How much a loss takes from a subflow of NMCC: the threshold factor m_t (Y. Thomas, dissertation, section
//! 4.2.2, equations (4.12) to (4.17)) and a budget for it.
//!
//! With w a window in packets, r a smoothed RTT, p a loss probability, sums over the members of the group:
//!
//! * w −= m_t w/2, where m_t = p_best (Σ w/r)² / Σ p (w/r)² (4.17), clamped to 1 ≤ m_t ≤ N: (4.17) keeps to
//!   it only where all p are equal. The best path is the one that grows fastest (max Ω, not max p).
//! * p = 1/interval between events. A member without an event is taken to be as good as the best that had
//!   one; at first all are equal.
//! * Windows in m_t and in the budget below are those before the cuts of this RTT, so that the order does not
//!   matter.
//!
//! [`Printed`](NmccDecrease::Printed) is that, of several best paths the one with the lowest p. By packets it
//! takes too little: 42 to 45 % beside one TCP, for want of the following, which are ours.
//!
//! * *Best paths together.* Paths whose Ω is within [`NEARLY`] of the largest are best together, and p_best
//!   is their events over their packets: with the lowest of two, m_t depends on which window is the larger
//!   now.
//! * *Budget.* m_t is right for losses that hit one subflow at a time. When all lose at once it cuts far too
//!   much: two subflows fall to half of their share. So the cuts within one RTT together take at most
//!   ½ Σ w/r, which is what one TCP would give up. One RTT is the shorter one of both subflows: a slow path
//!   must not excuse a fast one from its losses for long, nor a fast one, which always has a cut behind it, a
//!   slow one.
//! * *Debt.* m_t w/2 is more than the window for m_t > 2. What could not be cut is owed: the window does not
//!   grow until as much as that has been left out ([`Nmcc`](super::Nmcc)). Without, three subflows take 53 %,
//!   four 55 %.

use super::friendliness::{friendliness, omega};
use super::{CongestionEvent, Group, SubflowStats};
use crate::softfloat::Real;
use crate::{Span, Time};

/// Best together: Ω of at least this many eighths of the largest.
const NEARLY: u64 = 7;

/// How much a loss takes away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum NmccDecrease {
    /// Half of the window, as TCP (m_t = 1).
    Half,
    /// Half of the window times m_t, as printed.
    Printed,
    /// Half of the window times m_t, with p over all best paths, budget and debt.
    #[default]
    Balanced,
}

impl NmccDecrease {
    /// Packets to take from the window of `mine`, which may be more than it has.
    pub(super) fn packets(self, event: &CongestionEvent, mine: SubflowStats, group: &Group<'_>) -> Real {
        let half = mine.cwnd.real().half();
        if self == Self::Half || mine.srtt == Span::ZERO {
            return half;
        }
        let sums = Sums::of(event.now, mine, group);
        let cut = half * self.m_t(&sums).min(Real::from_u64(sums.n)).max(Real::ONE);
        if self == Self::Printed {
            return cut;
        }
        cut.min((sums.rates.half() - sums.spent) * Real::from_u64(mine.srtt.as_nanos()))
    }

    /// m_t as it comes, not yet within 1 and N.
    fn m_t(self, sums: &Sums) -> Real {
        match self {
            Self::Balanced => sums.rates.square() * sums.events / (sums.weighted * sums.packets),
            _ => sums.rates.square() / (sums.weighted * sums.longest),
        }
    }
}

/// Sums over the members of a group.
struct Sums {
    n: u64,
    /// Σ w/r, of which cut within one RTT.
    rates: Real,
    spent: Real,
    /// Σ p (w/r)².
    weighted: Real,
    /// Of the best paths: the longest interval; all packets and all events.
    longest: Real,
    packets: Real,
    events: Real,
}

impl Sums {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
    fn of(now: Time, mine: SubflowStats, group: &Group<'_>) -> Self {
        let (mut known, mut most) = (1, Real::ZERO);
        for m in group.current(mine) {
            known = known.max(if m.srtt == Span::ZERO { 0 } else { m.loss_interval });
            most = most.max(omega(&m));
        }
        let nearly = most * Real::from_u64(NEARLY) / Real::from_u64(8);
        let (mut n, mut rates, mut spent, mut weighted) = (0, Real::ZERO, Real::ZERO, Real::ZERO);
        let (mut longest, mut packets, mut events) = (Real::ONE, Real::ZERO, Real::ZERO);
        for m in group.current(mine) {
            let r = Real::from_u64(m.srtt.as_nanos().max(1));
            let recent = now.since(m.reduced_at) < m.srtt.min(mine.srtt);
            let cut = if recent { m.reduction.real() / r } else { Real::ZERO };
            let rate = m.cwnd.real() / r + cut;
            let interval = Real::from_u64(if m.loss_interval == 0 { known } else { m.loss_interval });
            // Zero if it does not count, which the best ones are not.
            let omega = omega(&m);
            if omega == most {
                longest = longest.max(interval);
            }
            if omega >= nearly {
                (packets, events) = (packets + rate, events + rate / interval);
            }
            (n, rates, spent) = (n + u64::from(m.srtt > Span::ZERO), rates + rate, spent + cut);
            weighted = weighted + rate.square() / interval;
        }
        Self { n, rates, spent, weighted, longest, packets, events }
    }
}

/// What NMCC makes of a group, for those who watch it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NmccFactors {
    /// m² of equation (4.7): the whole group grows as one TCP on its best path, each member by 1/m² of that.
    pub m2: Real,
    /// m_t, within 1 and N: how much more than half of a window a loss takes.
    pub m_t: Real,
}

impl NmccFactors {
    /// Of the subflow `group.me`, as of `now`. None while it has no round-trip time.
    #[must_use]
    pub fn of(now: Time, group: &Group<'_>) -> Option<Self> {
        let mine = *group.members.get(group.me).filter(|mine| mine.srtt > Span::ZERO)?;
        let sums = Sums::of(now, mine, group);
        let m_t = NmccDecrease::Balanced.m_t(&sums).min(Real::from_u64(sums.n)).max(Real::ONE);
        Some(Self { m2: friendliness(&mine, group), m_t })
    }
}
