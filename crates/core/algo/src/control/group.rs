//! What subflows know of each other: numbers that each publishes, never pointers. Who belongs to a group is
//! the world's decision (Thomas, dissertation, section 4.2.1: those whose paths share a link).

use super::Window;
use crate::softfloat::Real;
use crate::{Span, Time};

/// The most subflows one group may have; the world leaves further ones out of the numbers.
pub const MEMBERS_MAX: usize = 64;

/// The numbers a subflow publishes for its siblings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SubflowStats {
    /// Congestion window.
    pub cwnd: Window,
    /// Smoothed RTT; zero while there is no sample: such a member does not count yet.
    pub srtt: Span,
    /// Whether it is in slow start.
    pub slow_start: bool,
    /// NMCC: packets between its congestion events, smoothed: 1/p. Zero before the first.
    pub loss_interval: u64,
    /// When the group's last common phase began: a slowdown of LEDBAT++, a probe of coupled BBR.
    pub phase_at: Time,
    /// OLIA: packets that arrived between its last two congestion events, or since the last if those are
    /// more.
    pub packets_between_losses: u64,
    /// Coupled CUBIC: its window before congestion events, smoothed. BBR: the packets of a round trip at the
    /// rate last measured.
    pub peak: Window,
}

/// The subflows that may share a bottleneck, as numbers.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// All members, this subflow too. At most [`MEMBERS_MAX`] are looked at.
    pub members: &'a [SubflowStats],
    /// Which of them is this subflow.
    pub me: usize,
}

/// A member as [`Group::fold`] shows it. All zero if it does not count.
#[derive(Clone, Copy, Debug)]
pub struct SubflowTerms {
    /// One if it counts.
    pub counted: u32,
    /// Congestion window.
    pub cwnd: Window,
    /// The same, w, in packets.
    pub w: Real,
    /// 1/r for the smoothed RTT r in nanoseconds.
    pub inv_rtt: Real,
    /// [`SubflowStats::packets_between_losses`].
    pub packets_between_losses: u64,
    /// No RTT is known: all are taken to be equal.
    rtt_unknown: bool,
}

impl SubflowTerms {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
    fn new(member: &SubflowStats, srtt: Span, counts: bool) -> Self {
        // Selected, not skipped: a loop of which every turn is the same is cheap to verify in the kernel.
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
    /// Whether there is nobody to be coupled to.
    #[must_use]
    pub const fn is_alone(&self) -> bool {
        self.members.len() <= 1
    }

    /// All members, with `mine` for this subflow's numbers: as they are now, not as published. Those
    /// that do not count yet have no RTT and no window.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
    pub fn current(&self, mine: SubflowStats) -> impl Iterator<Item = SubflowStats> {
        let me = self.me;
        let current = move |(i, member): (usize, &SubflowStats)| {
            let member = if i == me { mine } else { *member };
            // Selected, not skipped: see `SubflowTerms::new`.
            let cwnd = if member.srtt > Span::ZERO { member.cwnd } else { Window::ZERO };
            SubflowStats { cwnd, ..member }
        };
        self.members.iter().take(MEMBERS_MAX).enumerate().map(current)
    }

    /// This subflow with `mine` for its numbers, as [`fold`](Self::fold) shows it.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
    #[must_use]
    pub fn mine(mine: &SubflowStats) -> SubflowTerms {
        let rtt_unknown = mine.srtt == Span::ZERO;
        SubflowTerms { rtt_unknown, ..SubflowTerms::new(mine, mine.srtt.max(Span::from_nanos(1)), true) }
    }

    /// Folds `step` over this subflow, `me`, then over its siblings. Those without an RTT show up as zeros.
    /// If this subflow has none itself, all count and are taken to be equally far away: nothing better is
    /// known.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
    pub fn fold<T>(&self, me: SubflowTerms, start: T, step: impl Fn(T, SubflowTerms) -> T) -> T {
        let mut folded = step(start, me);
        let Some(first) = self.members.first() else { return folded };
        for (i, member) in self.members.iter().enumerate().take(MEMBERS_MAX).skip(1) {
            // Everybody but me: in my place the first one, which is left out for it.
            let member = if i == self.me { first } else { member };
            let srtt = if me.rtt_unknown { Span::from_nanos(1) } else { member.srtt };
            folded = step(folded, SubflowTerms::new(member, srtt, srtt > Span::ZERO));
        }
        folded
    }
}
