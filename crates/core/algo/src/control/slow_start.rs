//! Implements slow start, apart from the algorithm that follows it: it decides how a window grows before
//! anything is known of the path, and when slow start ends without a loss (RFC 5681 section 3.1, RFC 9406,
//! dissertation section 4.2.2).

mod friendly;
mod hystart;

pub use friendly::FriendlySlowStart;
pub use hystart::Hystart;

use super::ledbat::{gain, micros};
use super::state::{SSTHRESH_MIN, State};
use super::{Ack, CongestionCause, CongestionEvent, Group, SubflowStats, Window};
use crate::softfloat::Real;

/// Holds the slow start of one subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowStart {
    /// The slow start of RFC 5681, which [`ClassicCc`](super::ClassicCc) describes.
    Standard,
    /// HyStart++.
    Hystart(Hystart),
    /// The friendly slow start of NMCC.
    Friendly(FriendlySlowStart),
    /// The slow start of LEDBAT++.
    Ledbat,
}

/// Describes a slow start: a row of [`SLOW_STARTS`].
#[derive(Clone, Copy, Debug)]
pub struct SlowStartInfo {
    /// The name after the plus sign in `lia+hystart`: lower case, unique.
    pub name: &'static str,
    /// A description of the behaviour in one line.
    pub title: &'static str,
    /// The source: a paper or an RFC.
    pub source: &'static str,
    /// Creates a fresh slow start.
    pub make: fn() -> SlowStart,
}

/// Lists all slow starts.
pub const SLOW_STARTS: &[SlowStartInfo] = &[
    SlowStartInfo {
        name: "standard",
        title: "doubles each round trip until there is a loss",
        source: "RFC 5681 section 3.1",
        make: SlowStart::standard,
    },
    SlowStartInfo {
        name: "hystart",
        title: "slows down and leaves when the round-trip time grows, before there is a loss",
        source: "RFC 9406 (HyStart++)",
        make: SlowStart::hystart,
    },
    SlowStartInfo {
        name: "friendly",
        title: "the subflows of a group together grow as one TCP on the best of their paths",
        source: "Thomas, dissertation, section 4.2.2",
        make: SlowStart::friendly,
    },
    SlowStartInfo {
        name: "ledbat",
        title: "grows more slowly the shorter the round trip is, so that queues grow slowly",
        source: "draft-irtf-iccrg-ledbat-plus-plus-06",
        make: SlowStart::ledbat,
    },
];

impl SlowStart {
    /// Creates a fresh [`Standard`](Self::Standard).
    #[must_use]
    pub const fn standard() -> Self {
        Self::Standard
    }

    /// Creates a fresh [`Hystart`](Self::Hystart).
    #[must_use]
    pub const fn hystart() -> Self {
        Self::Hystart(Hystart::new())
    }

    /// Creates a fresh [`Friendly`](Self::Friendly).
    #[must_use]
    pub const fn friendly() -> Self {
        Self::Friendly(FriendlySlowStart::new())
    }

    /// Creates a fresh [`Ledbat`](Self::Ledbat).
    #[must_use]
    pub const fn ledbat() -> Self {
        Self::Ledbat
    }

    /// Creates the slow start with that [name](SlowStartInfo::name); `None` if the name does not exist.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        SLOW_STARTS.iter().find(|entry| entry.name == name).map(|entry| (entry.make)())
    }

    /// Notes packets that arrived, in any phase; may end slow start. `grows` says whether the window may grow
    /// by them.
    #[inline]
    pub(super) fn on_ack(&mut self, state: &mut State, ack: &Ack, grows: bool, alone: bool) {
        match self {
            Self::Standard | Self::Ledbat => {}
            Self::Hystart(hystart) => hystart.on_ack(state, ack),
            Self::Friendly(friendly) => friendly.on_ack(state, ack, grows, alone),
        }
    }

    /// Grows the window in slow start.
    #[inline]
    pub(super) fn grow(&mut self, state: &mut State, mine: &SubflowStats, ack: &Ack, group: &Group<'_>) {
        let acked = Real::from_u64(u64::from(ack.acked));
        match self {
            Self::Hystart(hystart) => state.grow(hystart.packets(state, acked)),
            Self::Friendly(friendly) if !group.is_alone() => friendly.grow(state, mine, acked, group),
            Self::Ledbat => state.grow(acked * gain(micros(ack.min_rtt))),
            Self::Standard | Self::Friendly(_) => state.grow(acked),
        }
    }

    /// Applies a congestion event whose rule leaves the window `reduced`.
    pub(super) fn reduce(
        &mut self,
        state: &mut State,
        mine: &SubflowStats,
        event: &CongestionEvent,
        reduced: Window,
        group: &Group<'_>,
    ) {
        match self {
            Self::Friendly(friendly) if !group.is_alone() => {
                friendly.reduce(state, mine, event, reduced, group);
            }
            Self::Friendly(friendly) => {
                state.reduce(event.cause, reduced);
                friendly.follow(state);
            }
            Self::Standard | Self::Hystart(_) | Self::Ledbat => {
                state.reduce(event.cause, reduced);
                if event.cause == CongestionCause::Timeout {
                    // This holds even where a rule leaves less than two packets: slow start then follows, up
                    // to two packets.
                    state.ssthresh = state.ssthresh.max(SSTHRESH_MIN);
                    state.slow_start = true;
                }
            }
        }
    }

    /// Notes that the world has set the window and ssthresh.
    pub(super) fn set_window(&mut self, state: &mut State) {
        if let Self::Friendly(friendly) = self {
            friendly.set_window(state);
        }
    }

    /// Notes the state after a step in which the subflow was alone in its group.
    #[inline]
    pub(super) fn alone(&mut self, state: &State, round: u32) {
        if let Self::Friendly(friendly) = self {
            friendly.alone(state, round);
        }
    }
}
