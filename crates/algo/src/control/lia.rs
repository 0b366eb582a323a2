//! LIA, linked increases (RFC 6356 section 3; Wischik et al., NSDI 2011): the subflows together take as much
//! as one TCP on the best of their paths, and none more than a TCP on its own path.
//!
//! With w a window in packets, r a smoothed RTT, sums over the group:
//!
//! * Each packet that arrives: w += min(α/Σw, 1/w), where α = Σw · max(w/r²) / (Σ w/r)². The Σw cancel.
//! * A loss halves the window of its subflow; at least two packets stay.
//!
//! RFC 6356 has the window while in fast recovery be ssthresh. Windows here are never inflated, so they are
//! that already.

use super::{Ack, Change, Group, Member, Rule};
use crate::real::Real;

/// Linked increases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Lia;

impl Rule for Lia {
    #[inline]
    fn change(&mut self, mine: &Member, ack: &Ack, group: &Group<'_>) -> Change {
        let me = Group::mine(mine);
        let (rates, best) = group.fold(me, (Real::ZERO, Real::ZERO), |(rates, best), peer| {
            let rate = peer.w * peer.per_r;
            (rates + rate, best.max(rate * peer.per_r))
        });
        let rates = rates.square();
        // The smaller of best/rates and 1/w, with a single division.
        let (over, under) = if best * me.w < rates { (best, rates) } else { (Real::ONE, me.w) };
        Change::more(Real::from_u64(u64::from(ack.acked)) * over / under)
    }
}
