//! Slow start, apart from the algorithm that follows it: how a window grows before anything is known of the
//! path, and when that ends if no loss ends it (RFC 5681 section 3.1, RFC 9406, dissertation section 4.2.2).

mod friendly;
mod hystart;

pub use friendly::Friendly;
pub use hystart::Hystart;

use super::tcp::{SSTHRESH_MIN, State};
use super::{Ack, Cause, Group, Loss, Member, Window};
use crate::real::Real;

/// The slow start of one subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// As [`Tcp`](super::Tcp) has it.
    Standard,
    /// HyStart++.
    Hystart(Hystart),
    /// Friendly slow start of NMCC.
    Friendly(Friendly),
}

/// A row of [`STARTS`].
#[derive(Clone, Copy, Debug)]
pub struct StartEntry {
    /// What it is called, after the plus sign in `lia+hystart`: lower case, unique.
    pub name: &'static str,
    /// What it does, in a line.
    pub title: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// A fresh one.
    pub make: fn() -> Start,
}

/// Every slow start there is.
pub const STARTS: &[StartEntry] = &[
    StartEntry {
        name: "standard",
        title: "doubles each round trip until there is a loss",
        source: "RFC 5681 section 3.1",
        make: || Start::Standard,
    },
    StartEntry {
        name: "hystart",
        title: "slows down and leaves when the round-trip time grows, before there is a loss",
        source: "RFC 9406 (HyStart++)",
        make: || Start::Hystart(Hystart::new()),
    },
    StartEntry {
        name: "friendly",
        title: "the subflows of a group together grow as one TCP on the best of their paths",
        source: "Thomas, dissertation, section 4.2.2",
        make: || Start::Friendly(Friendly::new()),
    },
];

impl Start {
    /// A fresh one of that [name](StartEntry::name); `None` if there is none.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        STARTS.iter().find(|entry| entry.name == name).map(|entry| (entry.make)())
    }

    /// Packets arrived, whatever the phase; `grows`: the window may grow by them. May end slow start.
    #[inline]
    pub(super) fn arrived(&mut self, state: &mut State, ack: &Ack, grows: bool, alone: bool) {
        match self {
            Self::Standard => {}
            Self::Hystart(hystart) => hystart.arrived(state, ack),
            Self::Friendly(friendly) => friendly.arrived(state, ack, grows, alone),
        }
    }

    /// The window grows in slow start.
    #[inline]
    pub(super) fn grow(&mut self, state: &mut State, mine: &Member, ack: &Ack, group: &Group<'_>) {
        let acked = Real::from_u64(u64::from(ack.acked));
        match self {
            Self::Hystart(hystart) => state.grow(hystart.packets(state, acked)),
            Self::Friendly(friendly) if !group.is_alone() => friendly.grow(state, mine, acked, group),
            Self::Standard | Self::Friendly(_) => state.grow(acked),
        }
    }

    /// A congestion event that leaves `left`.
    pub(super) fn cut(
        &mut self,
        state: &mut State,
        mine: &Member,
        loss: &Loss,
        left: Window,
        group: &Group<'_>,
    ) {
        match self {
            Self::Friendly(friendly) if !group.is_alone() => friendly.cut(state, mine, loss, left, group),
            Self::Friendly(friendly) => {
                state.cut(loss.cause, left);
                friendly.follow(state);
            }
            Self::Standard | Self::Hystart(_) => {
                state.cut(loss.cause, left);
                if loss.cause == Cause::Timeout {
                    // Even where a rule leaves less than two packets: slow start follows, if only up to two.
                    state.ssthresh = state.ssthresh.max(SSTHRESH_MIN);
                    state.slow_start = true;
                }
            }
        }
    }

    /// The world has set the window and ssthresh.
    pub(super) fn moved(&mut self, state: &mut State) {
        if let Self::Friendly(friendly) = self {
            friendly.moved(state);
        }
    }

    /// After a step alone.
    #[inline]
    pub(super) fn alone(&mut self, state: &State, round: u32) {
        if let Self::Friendly(friendly) = self {
            friendly.alone(state, round);
        }
    }
}
