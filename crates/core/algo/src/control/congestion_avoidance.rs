//! Defines the contract of an algorithm: how the window moves in congestion avoidance and how far a loss
//! reduces it. [`ClassicCc`](super::ClassicCc) does the rest of RFC 5681 section 3.1 for all algorithms
//! alike.

use super::{Ack, CongestionEvent, Group, SubflowStats, Window, WindowDelta};

/// Describes how one algorithm differs from the others. [`ClassicCc`](super::ClassicCc) does the rest: it
/// holds the window and its bounds, runs slow start, and sets ssthresh and timeouts as RFC 5681 defines them.
/// It calls [`window_delta`](Self::window_delta) only when the window was the limit and no recovery is under
/// way.
///
/// The defaults of the methods are those of uncoupled TCP ([`Reno`](super::Reno)). The changes of the window
/// have no default. The argument `mine` holds the current numbers of the rule's own subflow; windows are in
/// packets, times in nanoseconds.
pub trait CongestionAvoidance: Copy {
    /// The smallest window that a loss leaves if the window was larger: two packets, RFC 5681 equation (4).
    const FLOOR: Window = Window::packets(2);

    /// Whether the rule also holds for a subflow that is alone in its group. If not, such a subflow grows by
    /// exactly 1/w a packet, and a loss halves its window.
    const APPLIES_ALONE: bool = false;

    /// Whether the rule is a scavenger. A scavenger yields to other flows, so its window also applies where
    /// it is alone in its group.
    const YIELDS: bool = false;

    /// Notes packets that arrived, in any phase, whether or not the window grows; for rules that keep
    /// statistics.
    fn on_ack(&mut self, _ack: &Ack) {}

    /// Returns how the window changes in congestion avoidance for the `ack.acked` packets that arrived. A
    /// batch weighs as much as its packets one by one.
    fn window_delta(&mut self, mine: &SubflowStats, ack: &Ack, group: &Group<'_>) -> WindowDelta;

    /// Returns the window at which slow start ends now, or `None` if it goes on; for rules that see more than
    /// losses.
    fn exit_slow_start(&mut self, _mine: &SubflowStats, _ack: &Ack) -> Option<Window> {
        None
    }

    /// Returns the window that a congestion event leaves. [`ClassicCc`](super::ClassicCc) sets ssthresh from
    /// it, applies [`FLOOR`](Self::FLOOR), and itself reduces the window to one packet after a timeout.
    fn reduced_window(
        &mut self,
        mine: &SubflowStats,
        _event: &CongestionEvent,
        _group: &Group<'_>,
    ) -> Window {
        mine.cwnd.half()
    }

    /// Adds the numbers that siblings need beyond window, RTT and phase.
    fn publish(&self, _member: &mut SubflowStats) {}
}
