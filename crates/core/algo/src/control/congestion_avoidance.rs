//! The contract of an algorithm: how a window moves in congestion avoidance, and what a loss leaves of it.
//! What RFC 5681 section 3.1 has besides is the same for all.

use super::{Ack, CongestionEvent, Group, SubflowStats, Window, WindowDelta};

/// An algorithm: what sets it apart from the others. [`ClassicCc`](super::ClassicCc) does the rest: it holds
/// the window and its bounds, runs slow start, asks for [`window_delta`](Self::window_delta) only when the
/// window was the limit and nothing is being recovered, and sets ssthresh and timeouts as RFC 5681 has them.
///
/// Everything has a default (uncoupled TCP, which [`Reno`](super::Reno) is) but the change itself. A rule is
/// shown `mine`, its own subflow's numbers as they are now; windows are in packets, times in nanoseconds.
pub trait CongestionAvoidance: Copy {
    /// The least window that a loss leaves, if it was larger: two packets, RFC 5681 equation (4).
    const FLOOR: Window = Window::packets(2);

    /// Whether the rule holds for a subflow that is alone, too. If not, such a subflow grows by 1/w a packet
    /// and is halved by a loss, exactly.
    const APPLIES_ALONE: bool = false;

    /// Whether it is a scavenger: it yields to others, so its window is to hold also where it is alone in its
    /// group.
    const YIELDS: bool = false;

    /// Packets arrived, in whatever phase, whether or not the window grows. For rules that keep statistics.
    fn on_ack(&mut self, _ack: &Ack) {}

    /// Congestion avoidance: how the window changes for the `ack.acked` packets that arrived. A batch weighs
    /// as much as its packets one by one.
    fn window_delta(&mut self, mine: &SubflowStats, ack: &Ack, group: &Group<'_>) -> WindowDelta;

    /// Slow start: a window to end it at, if it is time. For rules that see more than losses.
    fn exit_slow_start(&mut self, _mine: &SubflowStats, _ack: &Ack) -> Option<Window> {
        None
    }

    /// A congestion event: what it leaves of the window. [`ClassicCc`](super::ClassicCc) applies
    /// [`FLOOR`](Self::FLOOR), and goes down to one packet itself after a timeout: ssthresh is set from what
    /// is left.
    fn reduced_window(
        &mut self,
        mine: &SubflowStats,
        _event: &CongestionEvent,
        _group: &Group<'_>,
    ) -> Window {
        mine.cwnd.half()
    }

    /// Adds what the siblings need to know, beyond window, RTT and phase.
    fn publish(&self, _member: &mut SubflowStats) {}
}
