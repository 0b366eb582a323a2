//! Coupled, the fully coupled algorithm (Wischik et al., NSDI 2011 section 2.2, after Kelly and Voice): one
//! TCP's window over all paths. Only the least congested paths keep more than the floor, wherever that is a
//! choice.
//!
//! With W the sum of all windows of the group:
//!
//! * Each packet that arrives: w += 1/W.
//! * A loss takes W/2 from the window of its subflow; at least one packet stays.

use super::{Ack, CongestionAvoidance, CongestionEvent, Group, SubflowStats, Window, WindowDelta};
use crate::softfloat::Real;

/// Implements full coupling for one subflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Coupled;

/// Returns W in packets. It adds units of 2⁻³² packets, so that a group of the largest windows fits.
#[inline(always)]
#[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
fn total(mine: &SubflowStats, group: &Group<'_>) -> Real {
    let units = group.fold(Group::mine(mine), 0u64, |sum, member| sum.wrapping_add(member.cwnd.0 >> 8));
    Real::from_ratio(units, 32)
}

impl CongestionAvoidance for Coupled {
    const FLOOR: Window = Window::packets(1);

    #[inline]
    fn window_delta(&mut self, mine: &SubflowStats, ack: &Ack, group: &Group<'_>) -> WindowDelta {
        WindowDelta::increase(Real::from_u64(u64::from(ack.acked)) / total(mine, group))
    }

    fn reduced_window(&mut self, mine: &SubflowStats, _event: &CongestionEvent, group: &Group<'_>) -> Window {
        mine.cwnd.shrunk(total(mine, group).half())
    }
}
