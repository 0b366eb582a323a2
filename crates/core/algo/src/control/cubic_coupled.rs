//! Coupled CUBIC, ours: each subflow moves as CUBIC does (RFC 9438), but more slowly, so that the subflows
//! that may share a bottleneck together take what one CUBIC flow would take on the best of their paths.
//!
//! With w a window in packets, r a smoothed RTT, p a loss ratio, sums over the members of the group:
//!
//! * n = Σ x · Σ x⁴ / Σ x⁵, x = ŵ/r: how many flows as fast as the fastest the group is worth, 1 ≤ n ≤ N. ŵ
//!   is the window before a congestion event, smoothed over sixteen events. Before the first event, and while
//!   the window is 1.6 times as large as that, it is the window itself.
//! * C/n⁴ instead of C = 0.4 (RFC 9438 section 4.2), α/n² instead of α (section 4.3).
//! * All else is CUBIC's: K follows from C, a loss leaves 0.7 w, fast convergence, timeouts. α becomes 1
//!   where W_est has reached the smoothed window, not that before the last event alone.
//!
//! Why these powers: in equilibrium CUBIC's mean window is (C (3 + β)/(4 (1 − β)) (r/p)³)^¼ (RFC 9438,
//! equation 5), in its Reno-friendly region √(α (1 + β)/(2 (1 − β) p)). The first is as the fourth root of C,
//! the second as the square root of α. So every window is 1/n of CUBIC's window on the same path, and all
//! together have the rate of CUBIC on the path where that is the fastest: for that, n = Σ x / max x.
//!
//! Why not the maximum: the largest of several measured rates is above the mean of any of them. With the
//! maximum, n of four equal paths was 3.6. Σ x⁵ / Σ x⁴ is the largest rate where one rate stands out, and the
//! mean where the rates differ by chance. Where they differ somewhat, n is too large: by 6 % at most with two
//! paths (rates as 3 to 4), 14 % with four.
//!
//! Why the increase and not the decrease, as [`nmcc`](super::nmcc) has it: on a link without other traffic, a
//! loss should cost no more than it costs CUBIC. A loss leaves 0.7 of the window, so a queue of 3/7 of a
//! bandwidth-delay product keeps such a link full, however slowly the window comes back.
//!
//! Limits: the rule shares capacity fairly if packets are lost by chance. Behind a drop-tail queue whose
//! flows arrive in step (no jitter at all), the growing flow loses the packet. A slow flow then meets fewer
//! losses, and the group takes nearly as much as without coupling. With a queue of less than 3/7 of a
//! product, an idle link stays idle for some time after a loss, and longer than with CUBIC. An open member
//! counts with its last windows, whether or not it brings anything.
//!
//! When n changes by more than an eighth, a new epoch begins from the window as it is. Alone n = 1 and ŵ is
//! the window before the last event: CUBIC, step by step.

use super::cubic::{Epoch, PRIOR_SHIFT};
use super::{Ack, CongestionAvoidance, CongestionEvent, Group, SubflowStats, Window, WindowDelta};
use crate::Span;
use crate::softfloat::Real;

/// The number of binary places of n.
const FLOWS_PLACES: u32 = 16;
/// The weight of a new window in the smoothed one: 1 in 16.
const SMOOTHING: u32 = 16;

/// Implements coupled CUBIC for one subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CubicCoupled {
    epoch: Epoch,
    /// The number n of this epoch, in units of 2⁻¹⁶.
    flows: u32,
    /// The smoothed window before congestion events, in units of 2⁻⁸ packets; zero before the first event.
    peak: u32,
}

/// Converts a window kept in 32 bits, in units of 2⁻⁸ packets.
const fn kept(packets: u32) -> Window {
    Window((packets as u64) << PRIOR_SHIFT)
}

impl Default for CubicCoupled {
    fn default() -> Self {
        Self::new()
    }
}

impl CubicCoupled {
    /// Creates the rule before any event.
    #[must_use]
    pub const fn new() -> Self {
        Self { epoch: Epoch::new(), flows: 1 << FLOWS_PLACES, peak: 0 }
    }

    /// Returns ŵ, given the current window.
    fn peak(&self, cwnd: Window) -> Window {
        let peak = kept(self.peak);
        let is_larger = cwnd.real() * Real::from_u64(5) > peak.real() * Real::from_u64(8);
        if is_larger { cwnd } else { peak }
    }

    /// Returns the current n.
    fn flows(&self, mine: &SubflowStats, group: &Group<'_>) -> Real {
        if group.is_alone() {
            return Real::ONE;
        }
        let mine = SubflowStats { peak: self.peak(mine.cwnd), ..*mine };
        let (mut sum, mut fourth, mut fifth) = (Real::ZERO, Real::ZERO, Real::ZERO);
        for rate in group.current(mine).map(|member| rate(&member)) {
            let power = rate.square().square();
            (sum, fourth, fifth) = (sum + rate, fourth + power, fifth + power * rate);
        }
        if fifth.is_zero() { Real::ONE } else { (sum * (fourth / fifth)).max(Real::ONE) }
    }
}

/// Returns x; zero for a member without an RTT.
#[inline(always)]
#[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
fn rate(member: &SubflowStats) -> Real {
    // Select values instead of skipping members: the kernel verifies a loop cheaply if all turns are alike.
    let peak = if member.srtt == Span::ZERO { Window::ZERO } else { member.peak };
    peak.real() / Real::from_u64(member.srtt.as_nanos().max(1))
}

impl CongestionAvoidance for CubicCoupled {
    const APPLIES_ALONE: bool = true;

    #[inline]
    fn on_ack(&mut self, ack: &Ack) {
        self.epoch.on_ack(ack);
    }

    fn window_delta(&mut self, mine: &SubflowStats, ack: &Ack, group: &Group<'_>) -> WindowDelta {
        let (now, before) = (self.flows(mine, group), Real::from_ratio(u64::from(self.flows), FLOWS_PLACES));
        let (more, less) = (now.max(before), now.min(before));
        let mut flows = before;
        if !self.epoch.has_begun() || more * Real::from_u64(8) > less * Real::from_u64(9) {
            self.flows = u32::try_from(now.to_fixed(FLOWS_PLACES)).unwrap_or(u32::MAX);
            flows = Real::from_ratio(u64::from(self.flows), FLOWS_PLACES);
            self.epoch.begin(ack.now, mine.cwnd, flows.square().square());
        }
        let (cubic, reno) = (flows.square().square(), flows.square());
        self.epoch.window_delta(mine.cwnd, ack, (cubic, reno), kept(self.peak))
    }

    fn reduced_window(&mut self, mine: &SubflowStats, event: &CongestionEvent, group: &Group<'_>) -> Window {
        let cwnd = u32::try_from(mine.cwnd.0 >> PRIOR_SHIFT).unwrap_or(u32::MAX);
        self.peak = if self.peak == 0 || group.is_alone() {
            cwnd
        } else {
            self.peak - self.peak / SMOOTHING + cwnd / SMOOTHING
        };
        self.epoch.end(mine.cwnd, event.cause)
    }

    fn publish(&self, member: &mut SubflowStats) {
        member.peak = self.peak(member.cwnd);
    }
}
