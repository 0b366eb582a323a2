//! BALIA, balanced linked adaptation (draft-walid-mptcp-congestion-control-04 section 3; Peng et al.,
//! IEEE/ACM ToN 2016): between LIA, which is friendly, and OLIA, which is responsive.
//!
//! With w a window in packets, r a smoothed RTT, x = w/r, sums over the group, a = max x / x (a ≥ 1):
//!
//! * Each packet that arrives: w += x/(r (Σx)²) · (1 + a)/2 · (4 + a)/5.
//! * A loss takes w/2 · min(a, 3/2); at least one packet stays.
//!
//! The kernel implementation truncates a to an integer for the decrease, so that 1 < a < 2 takes half. This
//! implementation does not round a.

use super::{Ack, CongestionAvoidance, CongestionEvent, Group, SubflowStats, Window, WindowDelta};
use crate::softfloat::Real;

/// Implements balanced linked adaptation for one subflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Balia;

/// Returns x, Σx and max x.
#[inline(always)]
#[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
fn rates(mine: &SubflowStats, group: &Group<'_>) -> (Real, Real, Real) {
    let me = Group::mine(mine);
    let (sum, max) = group.fold(me, (Real::ZERO, Real::ZERO), |(sum, max), member| {
        let x = member.w * member.inv_rtt;
        (sum + x, max.max(x))
    });
    (me.w * me.inv_rtt, sum, max)
}

impl CongestionAvoidance for Balia {
    const FLOOR: Window = Window::packets(1);

    #[inline]
    fn window_delta(&mut self, mine: &SubflowStats, ack: &Ack, group: &Group<'_>) -> WindowDelta {
        let (x, sum, max) = rates(mine, group);
        // With r = w/x and a = max x/x, the rule is (x + max x)(4x + max x)/(10 w (Σx)²).
        let n = |n| Real::from_u64(n);
        let over = n(u64::from(ack.acked)) * (x + max) * (n(4) * x + max);
        WindowDelta::increase(over / (n(10) * mine.cwnd.real() * sum.square()))
    }

    fn reduced_window(&mut self, mine: &SubflowStats, _event: &CongestionEvent, group: &Group<'_>) -> Window {
        let (x, _, max) = rates(mine, group);
        let a = (max / x).min(Real::from_ratio(3, 1));
        mine.cwnd.shrunk(mine.cwnd.real().half() * a)
    }
}
