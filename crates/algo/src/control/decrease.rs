//! How much a loss takes from a subflow of NMCC: the threshold factor m_t (Y. Thomas, dissertation, section
//! 4.2.2, equations (4.12) to (4.17)) and a budget for it.
//!
//! With w a window in packets, r a smoothed RTT, p a loss probability, sums over the members of the group:
//!
//! * w −= m_t w/2, where m_t = p_best (Σ w/r)² / Σ p (w/r)² (4.17) and the best path is the one that grows
//!   fastest (max Ω, not max p; of several, that of the lowest p). Clamped to 1 ≤ m_t ≤ N: (4.17) keeps to it
//!   only where all p are equal.
//! * p = 1/interval between events. A member without an event is taken to be as good as the best that had
//!   one; at first all are equal.
//! * *Budget* (ours). m_t is right for losses that hit one subflow at a time. When all lose at once it cuts
//!   far too much: two subflows fall to half of their share. So the cuts within one RTT together take at most
//!   ½ Σ w/r, which is what one TCP would give up. One RTT is the shorter one of both subflows: a slow path
//!   must not excuse a fast one from its losses for long, nor a fast one, which always has a cut behind it, a
//!   slow one.
//! * Windows in m_t and in the budget are those before the cuts of this RTT, so that the order does not
//!   matter.

use super::nmcc::omega;
use super::{Group, Loss, Member};
use crate::Span;
use crate::real::Real;

/// How much a loss takes away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Decrease {
    /// Half of the window, as TCP (m_t = 1).
    Half,
    /// Half of the window times m_t, as printed.
    #[default]
    Threshold,
    /// The same, but together with the siblings' cuts in this RTT no more than half of the group's rate.
    Budgeted,
}

impl Decrease {
    /// Packets to take from the window of `mine`, which may be more than it has.
    pub(super) fn packets(self, loss: &Loss, mine: Member, group: &Group<'_>) -> Real {
        let half = mine.cwnd.real().half();
        if self == Self::Half || mine.srtt == Span::ZERO {
            return half;
        }
        let known = group.current(mine).map(|m| m.interval).max().unwrap_or(0).max(1);
        let (mut n, mut best, mut best_interval) = (0, Real::ZERO, Real::ONE);
        let (mut rates, mut spent, mut weighted) = (Real::ZERO, Real::ZERO, Real::ZERO);
        for m in group.current(mine) {
            let r = Real::from_u64(m.srtt.as_nanos());
            let recent = loss.now.since(m.cut_at) < m.srtt.min(mine.srtt);
            let cut = if recent { m.cut.real() / r } else { Real::ZERO };
            let rate = m.cwnd.real() / r + cut;
            let interval = Real::from_u64(if m.interval == 0 { known } else { m.interval });
            let omega = omega(&m);
            if omega > best || (omega == best && interval > best_interval) {
                (best, best_interval) = (omega, interval);
            }
            (n, rates, spent) = (n + 1, rates + rate, spent + cut);
            weighted = weighted + rate.square() / interval;
        }
        let m_t = (rates.square() / (weighted * best_interval)).min(Real::from_u64(n)).max(Real::ONE);
        let cut = half * m_t;
        if self == Self::Threshold {
            return cut;
        }
        cut.min((rates.half() - spent) * Real::from_u64(mine.srtt.as_nanos()))
    }
}
