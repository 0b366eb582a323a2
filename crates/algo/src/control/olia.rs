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
//! * Paths are ranked by l/r², the square of what a TCP would get of them, not by l²/r as some texts print.
//! * Largest means largest, to the last bit: there is no tolerance. Paths that do not differ have equal
//!   numbers, computed alike, so they do tie. Where they differ by next to nothing, α only makes equal what
//!   is not quite (it goes to zero once the best path has the largest window), at 1/N packets a round trip at
//!   most.
//! * All packets that arrive count in l, those in recovery too; a mark ends an interval as a loss does.

use super::{Ack, Change, Group, Loss, Member, Peer, Rule, Window};
use crate::real::{Real, at_most};

/// Opportunistic linked increases: packets between losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Olia {
    /// Between the last two.
    between: u64,
    /// Since the last one.
    since: u64,
}

impl Olia {
    /// Nothing has arrived yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { between: 0, since: 0 }
    }
}

/// l/r².
#[inline(always)]
#[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
fn quality(peer: &Peer) -> Real {
    Real::from_u64(peer.clear) * peer.per_r.square()
}

/// Sums and sets over a group, in one pass.
#[derive(Clone, Copy)]
struct Sets {
    members: u64,
    /// Σ w/r.
    rates: Real,
    /// The largest w, and how many have it: |M|.
    window: Window,
    largest: u64,
    /// The largest l/r², and how many have it: |B|.
    quality: Real,
    best: u64,
    /// |B ∩ M|.
    both: u64,
}

impl Sets {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
    fn of(me: Peer, group: &Group<'_>) -> Self {
        let none = Self {
            members: 0,
            rates: Real::ZERO,
            window: Window(0),
            largest: 0,
            quality: Real::ZERO,
            best: 0,
            both: 0,
        };
        group.fold(me, none, |sets, peer| {
            let quality = quality(&peer);
            // A larger one than any before empties a set; an equal one joins it.
            let (keep_m, keep_b) = (at_most(peer.cwnd.0, sets.window.0), quality.at_most(sets.quality));
            let in_m = u64::from(peer.one) * at_most(sets.window.0, peer.cwnd.0);
            let in_b = u64::from(peer.one) * sets.quality.at_most(quality);
            Self {
                members: sets.members + u64::from(peer.one),
                rates: sets.rates + peer.w * peer.per_r,
                window: sets.window.max(peer.cwnd),
                largest: sets.largest * keep_m + in_m,
                quality: sets.quality.max(quality),
                best: sets.best * keep_b + in_b,
                both: sets.both * keep_m * keep_b + in_m * in_b,
            }
        })
    }
}

impl Rule for Olia {
    const FLOOR: Window = Window::packets(1);

    #[inline]
    fn arrived(&mut self, ack: &Ack) {
        self.since = self.since.saturating_add(u64::from(ack.acked));
    }

    #[inline]
    fn change(&mut self, mine: &Member, ack: &Ack, group: &Group<'_>) -> Change {
        let me = Group::mine(mine);
        let sets = Sets::of(me, group);
        let acked = Real::from_u64(u64::from(ack.acked));
        let collected = sets.best.saturating_sub(sets.both);
        let alpha = |n: u64| acked / (me.w * Real::from_u64(sets.members.wrapping_mul(n)));
        // w/r² = (w/r)/r
        let more = acked * (me.w * me.per_r * me.per_r) / sets.rates.square();
        if collected == 0 {
            Change::more(more)
        } else if me.cwnd == sets.window {
            Change { more, less: alpha(sets.largest) }
        } else if quality(&me) == sets.quality {
            Change::more(more + alpha(collected))
        } else {
            Change::more(more)
        }
    }

    fn left(&mut self, mine: &Member, _loss: &Loss, _group: &Group<'_>) -> Window {
        (self.between, self.since) = (self.since, 0);
        mine.cwnd.half()
    }

    fn publish(&self, member: &mut Member) {
        member.clear = self.between.max(self.since);
    }
}
