//! LIA, linked increases (RFC 6356 section 3; Wischik et al., NSDI 2011): the subflows together take as much
//! as one TCP on the best of their paths, and none more than a TCP on its own path.
//!
//! With w a window in packets, r a smoothed RTT, sums over the group:
//!
//! * Each packet that arrives: w += min(α/Σw, 1/w), where α = Σw · max(w/r²) / (Σ w/r)². The Σw cancel.
//! * A loss halves the window of its subflow; at least two packets stay.
//!
//! RFC 6356 takes ssthresh as the window during fast recovery. Windows here are never inflated, so the window
//! already is ssthresh then.

use super::{Ack, CongestionAvoidance, Group, SubflowStats, WindowDelta};
use crate::softfloat::Real;

/// Implements linked increases for one subflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Lia;

impl CongestionAvoidance for Lia {
    #[inline]
    fn window_delta(&mut self, mine: &SubflowStats, ack: &Ack, group: &Group<'_>) -> WindowDelta {
        let me = Group::mine(mine);
        let (rates, best) = group.fold(me, (Real::ZERO, Real::ZERO), |(rates, best), member| {
            let rate = member.w * member.inv_rtt;
            (rates + rate, best.max(rate * member.inv_rtt))
        });
        let rates = rates.square();
        // Take the smaller of best/rates and 1/w with a single division.
        let (over, under) = if best * me.w < rates { (best, rates) } else { (Real::ONE, me.w) };
        WindowDelta::increase(Real::from_u64(u64::from(ack.acked)) * over / under)
    }
}
