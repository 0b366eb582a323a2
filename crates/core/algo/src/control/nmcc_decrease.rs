//! Computes how much a loss takes from an NMCC subflow: the threshold factor m_t (Y. Thomas, dissertation,
//! section 4.2.2, equations (4.12) to (4.17)).
//!
//! With w a window in packets, r a smoothed RTT, p a loss probability, sums over the members of the group:
//!
//! * w −= m_t w/2, where m_t = p_best (Σ w/r)² / Σ p (w/r)² (4.17), clamped to 1 ≤ m_t ≤ N: (4.17) keeps to
//!   it only where all p are equal. The best path is the one that grows fastest (max Ω, not max p); of
//!   several, the one with the lowest p.
//! * p = 1/interval between events, which the text does not define. A member without an event is taken to be
//!   as good as the best that had one; at first all are equal.
//!
//! The derivation of m_t assumes that losses hit one subflow at a time, by chance, in proportion to their
//! rates. These consequences follow from the rule alone:
//!
//! * With two members alike m_t = 2: a loss empties the window. With more, m_t w/2 is more than the window,
//!   so less is cut than m_t asks for: in `bench-a`, C=500, two members take 47 %, three 49, four 53.
//! * Losses that hit several members at once cut the group several times, where one TCP is halved once. The
//!   group takes less than half then.
//! * On a link without other traffic, the capacity that a loss frees is idle until the window has come back.

use super::friendliness::{friendliness, omega};
use super::{Group, SubflowStats};
use crate::Span;
use crate::softfloat::Real;

/// Returns m_t of equation (4.17), between 1 and N.
pub(super) fn threshold_factor(mine: SubflowStats, group: &Group<'_>) -> Real {
    let (mut known, mut most) = (1, Real::ZERO);
    for m in group.current(mine) {
        known = known.max(if m.srtt == Span::ZERO { 0 } else { m.loss_interval });
        most = most.max(omega(&m));
    }
    // These are Σ w/r, Σ p (w/r)², and 1/p of the best path.
    let (mut n, mut rates, mut weighted, mut longest) = (0, Real::ZERO, Real::ZERO, Real::ONE);
    for m in group.current(mine) {
        let rate = m.cwnd.real() / Real::from_u64(m.srtt.as_nanos().max(1));
        let interval = Real::from_u64(if m.loss_interval == 0 { known } else { m.loss_interval });
        // Ω is zero for a member that does not count; the best members have a positive Ω.
        if omega(&m) == most {
            longest = longest.max(interval);
        }
        (n, rates) = (n + u64::from(m.srtt > Span::ZERO), rates + rate);
        weighted = weighted + rate.square() / interval;
    }
    (rates.square() / (weighted * longest)).min(Real::from_u64(n)).max(Real::ONE)
}

/// Shows the two factors that NMCC computes for a group, for reports and figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NmccFactors {
    /// The factor m² of equation (4.7): the group grows as one TCP on its best path, each member by 1/m² of
    /// that.
    pub m2: Real,
    /// The factor m_t of equation (4.17), between 1 and N: a loss takes m_t times half of the window.
    pub m_t: Real,
}

impl NmccFactors {
    /// Returns the factors of the subflow `group.me`, or `None` while it has no round-trip time.
    #[must_use]
    pub fn of(group: &Group<'_>) -> Option<Self> {
        let mine = *group.members.get(group.me).filter(|mine| mine.srtt > Span::ZERO)?;
        Some(Self { m2: friendliness(&mine, group), m_t: threshold_factor(mine, group) })
    }
}
