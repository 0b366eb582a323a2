//! Implements EWTCP, equally weighted TCP (Honda et al., PFLDNeT 2009; as discussed by Wischik et al., NSDI
//! 2011 section 2.1). Each of n subflows is a TCP with a weight that makes n of them over one bottleneck take
//! as much as one TCP. The algorithm does not move windows between paths.
//!
//! * Each packet that arrives: w += a/w; a loss halves the window; at least two packets stay.
//! * a = 1/n². NSDI prints 1/√n, but AIMD gives w ~ √a, so n subflows would get n^(3/4) shares: 1.68 for two.
//!   With 1/n² they get one, and so did the simulator that the paper's results came from.
//!
//! n is the number of members that have an RTT.

use super::{Ack, CongestionAvoidance, Group, SubflowStats, WindowDelta};
use crate::softfloat::Real;

/// Implements equally weighted TCP for one subflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Ewtcp;

impl CongestionAvoidance for Ewtcp {
    #[inline]
    fn window_delta(&mut self, mine: &SubflowStats, ack: &Ack, group: &Group<'_>) -> WindowDelta {
        let n = u64::from(group.fold(Group::mine(mine), 0, |n, member| n + member.counted));
        WindowDelta::increase(
            Real::from_u64(u64::from(ack.acked)) / (mine.cwnd.real() * Real::from_u64(n * n)),
        )
    }
}
