//! OLIA, opportunistic linked increases (draft-khalili-mptcp-congestion-control-05 section 3; Khalili et al.,
//! CoNEXT 2012): LIA's coupling, Pareto-optimal, with a term that moves windows to the best paths.
//!
//! With w a window in packets, r a smoothed RTT, N members, sums over the group:
//!
//! * l = packets that arrived between the last two losses, or since the last one, whichever are more. B, the
//!   best paths: those with the largest l/r². M: those with the largest w. Collected: B without M.
//! * Each packet that arrives: w += (w/r²)/(Σ w/r)² + α/w. If there are collected paths, α =
//!   1/(N·|collected|) on each of them and −1/(N·|M|) on each in M; elsewhere, and if there are none, α = 0.
//!   It may take from a window.
//! * A loss halves the window of its subflow; at least one packet stays, since a group of N that kept two on
//!   each path would be N times as bold as one TCP where the path has room for little more.
//!
//! Where the text is silent, or other texts differ:
//!
//! * Paths are ranked by l/r², the square of the rate that a TCP would reach, not by l²/r as some texts
//!   print.
//! * Largest means largest, to the last bit: there is no tolerance. Paths that do not differ have equal
//!   numbers, computed alike, so they do tie. Where they differ by next to nothing, α only makes equal what
//!   is not quite (it goes to zero once the best path has the largest window), at 1/N packets a round trip at
//!   most.
//! * All packets that arrive count in l, those in recovery too; a mark ends an interval as a loss does.

use super::{
    Ack, CongestionAvoidance, CongestionEvent, Group, SubflowStats, SubflowTerms, Window, WindowDelta,
};
use crate::softfloat::{Real, at_most};

/// Implements opportunistic linked increases for one subflow; counts packets between losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Olia {
    /// The number of packets that arrived between the last two losses.
    packets_between_losses: u64,
    /// The number of packets that arrived since the last loss.
    packets_since_loss: u64,
}

impl Olia {
    /// Creates the rule before anything has arrived.
    #[must_use]
    pub const fn new() -> Self {
        Self { packets_between_losses: 0, packets_since_loss: 0 }
    }
}

/// Returns l/r², by which OLIA ranks paths.
#[inline(always)]
#[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
fn quality(member: &SubflowTerms) -> Real {
    Real::from_u64(member.packets_between_losses) * member.inv_rtt.square()
}

/// Holds the sums and sets over a group, collected in one pass.
#[derive(Clone, Copy)]
struct BestPaths {
    members: u64,
    /// The sum Σ w/r.
    rates: Real,
    /// The largest w, and |M|, the number of members that have it.
    window: Window,
    largest: u64,
    /// The largest l/r², and |B|, the number of members that have it.
    quality: Real,
    best: u64,
    /// The number of members in both sets, |B ∩ M|.
    both: u64,
}

impl BestPaths {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
    fn of(me: SubflowTerms, group: &Group<'_>) -> Self {
        let none = Self {
            members: 0,
            rates: Real::ZERO,
            window: Window::ZERO,
            largest: 0,
            quality: Real::ZERO,
            best: 0,
            both: 0,
        };
        group.fold(me, none, |sets, member| {
            let quality = quality(&member);
            // A value larger than all before empties a set; an equal value joins it.
            let (keep_m, keep_b) = (at_most(member.cwnd.0, sets.window.0), quality.at_most(sets.quality));
            let in_m = u64::from(member.counted) * at_most(sets.window.0, member.cwnd.0);
            let in_b = u64::from(member.counted) * sets.quality.at_most(quality);
            Self {
                members: sets.members + u64::from(member.counted),
                rates: sets.rates + member.w * member.inv_rtt,
                window: sets.window.max(member.cwnd),
                largest: sets.largest * keep_m + in_m,
                quality: sets.quality.max(quality),
                best: sets.best * keep_b + in_b,
                both: sets.both * keep_m * keep_b + in_m * in_b,
            }
        })
    }
}

impl CongestionAvoidance for Olia {
    const FLOOR: Window = Window::packets(1);

    #[inline]
    fn on_ack(&mut self, ack: &Ack) {
        self.packets_since_loss = self.packets_since_loss.saturating_add(u64::from(ack.acked));
    }

    #[inline]
    fn window_delta(&mut self, mine: &SubflowStats, ack: &Ack, group: &Group<'_>) -> WindowDelta {
        let me = Group::mine(mine);
        let sets = BestPaths::of(me, group);
        let acked = Real::from_u64(u64::from(ack.acked));
        let collected = sets.best.saturating_sub(sets.both);
        let alpha = |n: u64| acked / (me.w * Real::from_u64(sets.members.wrapping_mul(n)));
        // w/r² = (w/r)/r
        let more = acked * (me.w * me.inv_rtt * me.inv_rtt) / sets.rates.square();
        if collected == 0 {
            WindowDelta::increase(more)
        } else if me.cwnd == sets.window {
            WindowDelta { increase: more, decrease: alpha(sets.largest) }
        } else if quality(&me) == sets.quality {
            WindowDelta::increase(more + alpha(collected))
        } else {
            WindowDelta::increase(more)
        }
    }

    fn reduced_window(
        &mut self,
        mine: &SubflowStats,
        _event: &CongestionEvent,
        _group: &Group<'_>,
    ) -> Window {
        (self.packets_between_losses, self.packets_since_loss) = (self.packets_since_loss, 0);
        mine.cwnd.half()
    }

    fn publish(&self, member: &mut SubflowStats) {
        member.packets_between_losses = self.packets_between_losses.max(self.packets_since_loss);
    }
}
