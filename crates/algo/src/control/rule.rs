//! The contract of an algorithm: how a window moves in congestion avoidance, and what a loss leaves of it.
//! What RFC 5681 section 3.1 has besides is the same for all.

use super::{Ack, Group, Loss, Member, Window};
use crate::real::Real;

/// How a window is to change, in packets: by `more` − `less`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Change {
    /// Packets to add.
    pub more: Real,
    /// Packets to take away.
    pub less: Real,
}

impl Change {
    /// None.
    pub const NONE: Self = Self { more: Real::ZERO, less: Real::ZERO };

    /// `packets` more.
    #[must_use]
    pub const fn more(packets: Real) -> Self {
        Self { more: packets, less: Real::ZERO }
    }

    /// That from one window to another.
    #[must_use]
    pub const fn between(from: Window, to: Window) -> Self {
        Self { more: to.beyond(from).real(), less: from.beyond(to).real() }
    }
}

/// An algorithm: what sets it apart from the others. [`Tcp`](super::Tcp) does the rest: it holds the window
/// and its bounds, runs slow start, asks for [`change`](Rule::change) only when the window was the limit and
/// nothing is being recovered, and sets ssthresh and timeouts as RFC 5681 has them.
///
/// Everything has a default (uncoupled TCP, which [`Reno`](super::Reno) is) but the change itself. A rule is
/// shown `mine`, its own subflow's numbers as they are now; windows are in packets, times in nanoseconds.
pub trait Rule: Copy {
    /// The least window that a loss leaves, if it was larger: two packets, RFC 5681 equation (4).
    const FLOOR: Window = Window::packets(2);

    /// Whether the rule holds for a subflow that is alone, too. If not, such a subflow grows by 1/w a packet
    /// and is halved by a loss, exactly.
    const ALONE: bool = false;

    /// Packets arrived, in whatever phase, whether or not the window grows. For rules that keep statistics.
    fn arrived(&mut self, _ack: &Ack) {}

    /// Congestion avoidance: how the window changes for the `ack.acked` packets that arrived. A batch weighs
    /// as much as its packets one by one.
    fn change(&mut self, mine: &Member, ack: &Ack, group: &Group<'_>) -> Change;

    /// Slow start: a window to end it at, if it is time. For rules that see more than losses.
    fn leave(&mut self, _mine: &Member, _ack: &Ack) -> Option<Window> {
        None
    }

    /// A congestion event: what it leaves of the window. [`Tcp`](super::Tcp) applies [`Rule::FLOOR`], and
    /// goes down to one packet itself after a timeout: ssthresh is set from what is left.
    fn left(&mut self, mine: &Member, _loss: &Loss, _group: &Group<'_>) -> Window {
        mine.cwnd.half()
    }

    /// How much the window lost in that event, all told.
    fn settled(&mut self, _loss: &Loss, _cut: Window) {}

    /// Adds what the siblings need to know, beyond window, RTT and phase.
    fn publish(&self, _member: &mut Member) {}
}
