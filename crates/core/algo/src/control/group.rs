//! Defines the numbers by which subflows know each other: each subflow publishes numbers, never pointers. The
//! world decides which subflows form a group (Thomas, dissertation, section 4.2.1: subflows whose paths share
//! a link).

use super::Window;
use crate::softfloat::Real;
use crate::{Span, Time};

/// The largest number of subflows in a group; the world leaves further subflows out of the numbers.
pub const MEMBERS_MAX: usize = 64;

/// Holds the numbers that a subflow publishes for its siblings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SubflowStats {
    /// The congestion window.
    pub cwnd: Window,
    /// The smoothed RTT; zero before the first sample. A member without an RTT does not count yet.
    pub srtt: Span,
    /// Whether the subflow is in slow start.
    pub slow_start: bool,
    /// The smoothed number of packets between the subflow's congestion events, 1/p, for NMCC; zero before the
    /// first event.
    pub loss_interval: u64,
    /// The time at which the group's last common phase began: a slowdown of LEDBAT++, or a probe of coupled
    /// BBR.
    pub phase_at: Time,
    /// The number of packets that arrived between the subflow's last two congestion events, or since the last
    /// event if that number is larger, for OLIA.
    pub packets_between_losses: u64,
    /// For coupled CUBIC, the smoothed window before congestion events. For BBR, the number of packets that
    /// arrive in a round trip at the rate last measured.
    pub peak: Window,
}

/// Holds the numbers of the subflows that may share a bottleneck.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// The numbers of all members, including this subflow. An algorithm reads at most [`MEMBERS_MAX`] of
    /// them.
    pub members: &'a [SubflowStats],
    /// The index of this subflow in `members`.
    pub me: usize,
}

/// Holds one member's numbers as [`Group::fold`] passes them on. All fields are zero if the member does not
/// count.
#[derive(Clone, Copy, Debug)]
pub struct SubflowTerms {
    /// One if the member counts, zero otherwise.
    pub counted: u32,
    /// The congestion window.
    pub cwnd: Window,
    /// The congestion window w as a real number of packets.
    pub w: Real,
    /// 1/r for the smoothed RTT r in nanoseconds.
    pub inv_rtt: Real,
    /// The member's [`SubflowStats::packets_between_losses`].
    pub packets_between_losses: u64,
    /// Whether this subflow has no RTT yet; all members' RTTs then count as equal.
    rtt_unknown: bool,
}

impl SubflowTerms {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
    fn new(member: &SubflowStats, srtt: Span, counts: bool) -> Self {
        // Select values instead of skipping members: the kernel verifies a loop cheaply if all turns are
        // alike.
        let cwnd = if counts { member.cwnd } else { Window::ZERO };
        let r = Real::from_u64(if counts { srtt.as_nanos() } else { 1 });
        let packets_between_losses = if counts { member.packets_between_losses } else { 0 };
        Self {
            counted: u32::from(counts),
            cwnd,
            w: cwnd.real(),
            inv_rtt: r.inverse(),
            packets_between_losses,
            rtt_unknown: false,
        }
    }
}

impl Group<'_> {
    /// Returns whether this subflow has no siblings to be coupled to.
    #[must_use]
    pub const fn is_alone(&self) -> bool {
        self.members.len() <= 1
    }

    /// Iterates over all members, with the current numbers `mine` in place of the published numbers of this
    /// subflow. Members that do not count yet have no RTT and no window.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
    pub fn current(&self, mine: SubflowStats) -> impl Iterator<Item = SubflowStats> {
        let me = self.me;
        let current = move |(i, member): (usize, &SubflowStats)| {
            let member = if i == me { mine } else { *member };
            // Select values instead of skipping members: see `SubflowTerms::new`.
            let cwnd = if member.srtt > Span::ZERO { member.cwnd } else { Window::ZERO };
            SubflowStats { cwnd, ..member }
        };
        self.members.iter().take(MEMBERS_MAX).enumerate().map(current)
    }

    /// Returns the terms of this subflow, whose current numbers are `mine`, for [`fold`](Self::fold).
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
    #[must_use]
    pub fn mine(mine: &SubflowStats) -> SubflowTerms {
        let rtt_unknown = mine.srtt == Span::ZERO;
        SubflowTerms { rtt_unknown, ..SubflowTerms::new(mine, mine.srtt.max(Span::from_nanos(1)), true) }
    }

    /// Folds `step` over this subflow, `me`, then over its siblings. Siblings without an RTT appear as zeros.
    /// If this subflow has no RTT itself, all members count and their RTTs are taken to be equal, because
    /// nothing better is known.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
    pub fn fold<T>(&self, me: SubflowTerms, start: T, step: impl Fn(T, SubflowTerms) -> T) -> T {
        let mut folded = step(start, me);
        let Some(first) = self.members.first() else { return folded };
        for (i, member) in self.members.iter().enumerate().take(MEMBERS_MAX).skip(1) {
            // Visit every member but this subflow: the first member, which the loop skips, takes this index.
            let member = if i == self.me { first } else { member };
            let srtt = if me.rtt_unknown { Span::from_nanos(1) } else { member.srtt };
            folded = step(folded, SubflowTerms::new(member, srtt, srtt > Span::ZERO));
        }
        folded
    }
}
