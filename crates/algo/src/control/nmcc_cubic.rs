//! NMCC with CUBIC's moves, for senders that are CUBIC themselves: a window that takes longer to come back
//! than theirs bounds them where nobody else wants the bandwidth. After Thomas, dissertation, section 4.2.2
//! (the increase shared by m²) and RFC 9438 (its shape, and what a loss leaves).
//!
//! With w a window in packets, r a smoothed RTT, t the time in congestion avoidance since the last congestion
//! event in seconds, sums over the members of the group:
//!
//! * m² = Σ 1/r² / max 1/r², that of [`nmcc`](super::nmcc) where nobody is in slow start. The share s = m²,
//!   or 1 while the path has no queue: smoothed RTT < 9/8 of the smallest + 1 ms.
//! * W(t) = C/s (t − K)³ + W_max, K = ∛(s (W_max − w_epoch)/C), C = 0.4 (RFC 9438 section 4.2).
//! * Each packet that arrives: w += (target − w)/w, target = W(t + RTT) within w and 1.5 w; but W_est += α/(s
//!   w), α = 9/17 or, once W_est has reached W_max, 1; where W(t) < W_est, w = W_est (section 4.3).
//! * A loss or mark leaves 0.7 w, at least two packets (section 4.6), with fast convergence (section 4.7). A
//!   timeout: as [`cubic`](super::cubic) has it.
//!
//! Who is in slow start counts as one who is not: this is for windows over TCP, whose senders end theirs by
//! themselves, and one that is bounded by its server never loses a packet that would end ours.
//!
//! Why a path without a queue grows as if alone: what it takes there nobody else does, for a link that others
//! fill has a queue. That is no detection of who shares what: it only brings a window back to where links are
//! full. A path of which the smallest RTT was never seen, for its queue was never empty, errs to that side
//! until it has been seen.
//!
//! When s changes by more than a quarter, a new epoch begins from the window as it is. Alone it is CUBIC, but
//! that α becomes 1 at W_max where that has converged below the window before the event.

use super::cubic::Epoch;
use super::{Ack, CongestionAvoidance, CongestionEvent, Group, SubflowStats, Window, WindowDelta};
use crate::Span;
use crate::softfloat::Real;

/// What the smallest RTT varies by without a queue, besides an eighth of it: the clock of timestamps.
const EMPTY: Span = Span::from_millis(1);

/// NMCC with CUBIC's moves, of one subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NmccCubic {
    epoch: Epoch,
    /// s of this epoch.
    share: Real,
}

impl Default for NmccCubic {
    fn default() -> Self {
        Self::new()
    }
}

impl NmccCubic {
    /// No event yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { epoch: Epoch::new(), share: Real::ONE }
    }
}

/// s: how many times more slowly this subflow grows than CUBIC.
#[inline(always)]
#[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
fn share(mine: &SubflowStats, ack: &Ack, group: &Group<'_>) -> Real {
    if ack.srtt < ack.min_rtt + ack.min_rtt.over(8) + EMPTY {
        return Real::ONE;
    }
    let (sum, max) = group.fold(Group::mine(mine), (Real::ZERO, Real::ZERO), |(sum, max), member| {
        let omega = member.inv_rtt.square() * Real::from_u64(u64::from(member.counted));
        (sum + omega, max.max(omega))
    });
    (sum / max).max(Real::ONE)
}

impl CongestionAvoidance for NmccCubic {
    const APPLIES_ALONE: bool = true;

    #[inline]
    fn on_ack(&mut self, ack: &Ack) {
        self.epoch.on_ack(ack);
    }

    fn window_delta(&mut self, mine: &SubflowStats, ack: &Ack, group: &Group<'_>) -> WindowDelta {
        let share = share(mine, ack, group);
        let (more, less) = (share.max(self.share), share.min(self.share));
        if !self.epoch.has_begun() || more * Real::from_u64(4) > less * Real::from_u64(5) {
            self.share = share;
            self.epoch.begin(ack.now, mine.cwnd, share);
        }
        self.epoch.window_delta(mine.cwnd, ack, self.share, self.epoch.w_max)
    }

    fn reduced_window(&mut self, mine: &SubflowStats, event: &CongestionEvent, _group: &Group<'_>) -> Window {
        self.epoch.end(mine.cwnd, event.cause)
    }
}
