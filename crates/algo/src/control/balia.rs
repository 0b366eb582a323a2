//! BALIA, balanced linked adaptation (draft-walid-mptcp-congestion-control-04 section 3; Peng et al.,
//! IEEE/ACM ToN 2016): between LIA, which is friendly, and OLIA, which is responsive.
//!
//! With w a window in packets, r a smoothed RTT, x = w/r, sums over the group, a = max x / x (a ≥ 1):
//!
//! * Each packet that arrives: w += x/(r (Σx)²) · (1 + a)/2 · (4 + a)/5.
//! * A loss takes w/2 · min(a, 3/2); at least one packet stays.
//!
//! The kernel implementation truncates a to an integer for the decrease, so that 1 < a < 2 takes half; here a
//! is what it is.

use super::{Ack, Change, Group, Loss, Member, Rule, Window};
use crate::real::Real;

/// Balanced linked adaptation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Balia;

/// x, Σx, max x.
#[inline(always)]
#[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
fn rates(mine: &Member, group: &Group<'_>) -> (Real, Real, Real) {
    let me = Group::mine(mine);
    let (sum, max) = group.fold(me, (Real::ZERO, Real::ZERO), |(sum, max), peer| {
        let x = peer.w * peer.per_r;
        (sum + x, max.max(x))
    });
    (me.w * me.per_r, sum, max)
}

impl Rule for Balia {
    const FLOOR: Window = Window::packets(1);

    #[inline]
    fn change(&mut self, mine: &Member, ack: &Ack, group: &Group<'_>) -> Change {
        let (x, sum, max) = rates(mine, group);
        // The rule, with r = w/x and a = max x/x, is (x + max x)(4x + max x)/(10 w (Σx)²).
        let n = |n| Real::from_u64(n);
        let over = n(u64::from(ack.acked)) * (x + max) * (n(4) * x + max);
        Change::more(over / (n(10) * mine.cwnd.real() * sum.square()))
    }

    fn left(&mut self, mine: &Member, _loss: &Loss, group: &Group<'_>) -> Window {
        let (x, _, max) = rates(mine, group);
        let a = (max / x).min(Real::from_ratio(3, 1));
        mine.cwnd.shrunk(mine.cwnd.real().half() * a)
    }
}
