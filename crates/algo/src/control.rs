//! Congestion control: one subflow's window, with its siblings in view.
//!
//! The world calls [`Control::on_ack`] for what arrived and [`Control::on_congestion`] for each congestion
//! event (at most one a window), and hands over a [`Group`]: the published numbers of the subflows that may
//! share a bottleneck (same `group_id`), this one included. An algorithm never reaches into a connection. A
//! group with one member runs as ordinary single-path TCP.
//!
//! [`ALGORITHMS`] is the table of all of them: command lines, scenario files and documentation are made from
//! it. Nothing here allocates, panics or uses floating point: the same code runs inside the kernel.

mod decrease;
mod interval;
mod nmcc;
mod reno;

pub use decrease::Decrease;
pub use nmcc::Nmcc;
pub use reno::Reno;

use crate::real::Real;
use crate::{Span, Time};

/// The most subflows one group may have; the world leaves further ones out of the numbers.
pub const MEMBERS_MAX: usize = 64;

/// A congestion window in packets, fixed point: 2⁻⁴⁰ packets a unit, so that the increment 1/w is exact to
/// 10⁻⁶ at a window of a million packets. At most 2²³ packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window(pub u64);

impl Window {
    /// Units a packet.
    pub const ONE: u64 = 1 << 40;
    /// The largest window.
    pub const MAX: Self = Self(Self::ONE << 23);

    /// `n` whole packets.
    #[must_use]
    pub const fn packets(n: u32) -> Self {
        let n = n as u64;
        Self(if n > 1 << 23 { Self::MAX.0 } else { n * Self::ONE })
    }
    /// Whole packets, rounded down.
    #[must_use]
    pub const fn floor(self) -> u32 {
        (self.0 / Self::ONE) as u32
    }
    /// As a real number of packets.
    #[must_use]
    pub const fn real(self) -> Real {
        Real::from_ratio(self.0, 40)
    }
    /// A real number of packets as a window, to the nearest 2⁻⁴⁰; saturates, beyond [`Window::MAX`] too.
    #[must_use]
    pub const fn from_real(packets: Real) -> Self {
        Self(packets.to_fixed(40))
    }
    /// Larger by `packets`, up to [`Window::MAX`].
    #[must_use]
    pub fn grown(self, packets: Real) -> Self {
        Self(self.0.saturating_add(packets.to_fixed(40))).min(Self::MAX)
    }
    /// Smaller by `packets`, but at least one packet.
    #[must_use]
    pub fn shrunk(self, packets: Real) -> Self {
        Self(self.0.saturating_sub(packets.to_fixed(40)).max(Self::ONE))
    }
    /// Half of it.
    #[must_use]
    pub const fn half(self) -> Self {
        Self(self.0 >> 1)
    }
    /// By how much this is more than `other`; zero if it is not.
    #[must_use]
    pub const fn beyond(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
    /// This window as the decision of a [`Control`].
    #[must_use]
    pub fn budget(self) -> Budget {
        Budget { cwnd: self.floor().max(1) }
    }
}

/// The initial window: 10 packets (RFC 6928 section 2).
pub const INITIAL_WINDOW: Window = Window::packets(10);

/// What came: input of [`Control::on_ack`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Ack {
    /// When.
    pub now: Time,
    /// Packets that arrived; a batch counts as its number of packets, never as one.
    pub acked: u32,
    /// Rounds (windows' worth of packets, each about one RTT) that this subflow has completed so far.
    pub round: u32,
    /// Smoothed RTT of this subflow.
    pub srtt: Span,
    /// Whether the window was the limit; if not, it must not grow (RFC 7661's concern).
    pub limited: bool,
    /// Whether what arrived was asked before the last congestion event: the window does not grow then.
    pub recovering: bool,
}

/// Why a congestion event is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Cause {
    /// Packets were lost and others arrived: fast retransmit.
    Loss,
    /// Nothing arrived for a retransmission timeout.
    Timeout,
    /// The network marked a packet (ECN CE, RFC 3168).
    Mark,
}

/// A congestion event: input of [`Control::on_congestion`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Loss {
    /// When.
    pub now: Time,
    /// Why.
    pub cause: Cause,
    /// Smoothed RTT of this subflow.
    pub srtt: Span,
}

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Budget {
    /// Packets that may be outstanding: at least 1.
    pub cwnd: u32,
}

/// The numbers a subflow publishes for its siblings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Member {
    /// Congestion window.
    pub cwnd: Window,
    /// Smoothed RTT; zero while there is no sample: such a member does not count yet.
    pub srtt: Span,
    /// Whether it is in slow start.
    pub slow_start: bool,
    /// Packets between its congestion events, smoothed: 1/p. Zero before the first.
    pub interval: u64,
    /// How much its window lost in its last congestion event.
    pub cut: Window,
    /// When that was.
    pub cut_at: Time,
}

/// The subflows that may share a bottleneck, as numbers.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// All members, this subflow too. At most [`MEMBERS_MAX`] are looked at.
    pub members: &'a [Member],
    /// Which of them is this subflow.
    pub me: usize,
}

impl Group<'_> {
    /// The members that have an RTT and so count.
    pub fn counted(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().take(MEMBERS_MAX).filter(|m| m.srtt > Span::ZERO)
    }
    /// The same, with `mine` for this subflow's numbers: as they are now, not as published; of its own cuts
    /// it is not told.
    pub fn current(&self, mine: Member) -> impl Iterator<Item = Member> {
        let (mine, me) = (Member { cut: Window(0), ..mine }, self.me);
        let current = move |(i, member): (usize, &Member)| if i == me { mine } else { *member };
        self.members.iter().take(MEMBERS_MAX).enumerate().map(current).filter(|m| m.srtt > Span::ZERO)
    }
}

/// Congestion control of one subflow.
pub trait Control {
    /// Packets arrived.
    fn on_ack(&mut self, ack: &Ack, group: &Group<'_>) -> Budget;
    /// A congestion event.
    fn on_congestion(&mut self, loss: &Loss, group: &Group<'_>) -> Budget;
    /// The numbers to publish, given this subflow's smoothed RTT.
    fn member(&self, srtt: Span) -> Member;
}

/// The algorithm of one subflow: a closed set, so that a table of subflows is a plain array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Uncoupled TCP.
    Reno(Reno),
    /// Coupled, normalised multipath congestion control.
    Nmcc(Nmcc),
}

impl Algorithm {
    /// A fresh machine of the algorithm of that [name](Entry::name); `None` if there is none.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        ALGORITHMS.iter().find(|entry| entry.name == name).map(|entry| (entry.make)())
    }
}

impl Control for Algorithm {
    fn on_ack(&mut self, ack: &Ack, group: &Group<'_>) -> Budget {
        match self {
            Self::Reno(reno) => reno.on_ack(ack, group),
            Self::Nmcc(nmcc) => nmcc.on_ack(ack, group),
        }
    }
    fn on_congestion(&mut self, loss: &Loss, group: &Group<'_>) -> Budget {
        match self {
            Self::Reno(reno) => reno.on_congestion(loss, group),
            Self::Nmcc(nmcc) => nmcc.on_congestion(loss, group),
        }
    }
    fn member(&self, srtt: Span) -> Member {
        match self {
            Self::Reno(reno) => reno.member(srtt),
            Self::Nmcc(nmcc) => nmcc.member(srtt),
        }
    }
}

/// A row of [`ALGORITHMS`].
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What it is called on a command line: lower case, unique.
    pub name: &'static str,
    /// What it does, in a line.
    pub title: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// A fresh machine with its defaults.
    pub make: fn() -> Algorithm,
}

/// Every algorithm there is; the first is the default.
pub const ALGORITHMS: &[Entry] = &[
    Entry {
        name: "nmcc",
        title: "coupled: together as aggressive as one TCP on the best path, from slow start on",
        source: "Thomas, dissertation, section 4.2.2",
        make: || Algorithm::Nmcc(Nmcc::default()),
    },
    Entry {
        name: "nmcc-budget",
        title: "NMCC whose losses within one RTT cut its rate by half at most: bolder in large groups",
        source: "Thomas, dissertation, section 4.2.2; reduction budget per RTT: ours",
        make: || Algorithm::Nmcc(Nmcc::new(Decrease::Budgeted)),
    },
    Entry {
        name: "nmcc-half",
        title: "NMCC without the threshold factor: each loss halves the window",
        source: "Thomas, dissertation, section 4.2.2, equations (4.5) to (4.11)",
        make: || Algorithm::Nmcc(Nmcc::new(Decrease::Half)),
    },
    Entry {
        name: "reno",
        title: "uncoupled: each subflow is a TCP of its own",
        source: "RFC 5681, RFC 6928",
        make: || Algorithm::Reno(Reno::new()),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        for (i, entry) in ALGORITHMS.iter().enumerate() {
            assert!(Algorithm::by_name(entry.name).is_some());
            assert!(ALGORITHMS.iter().skip(i + 1).all(|other| other.name != entry.name));
            let fresh = (entry.make)().member(Span::ZERO);
            assert_eq!((fresh.cwnd, fresh.slow_start, fresh.interval), (INITIAL_WINDOW, true, 0));
        }
        assert_eq!(Algorithm::by_name("nmcc"), Some(Algorithm::Nmcc(Nmcc::default())));
        assert_eq!(Algorithm::by_name("Cubic"), None);
    }

    #[test]
    fn windows() {
        assert_eq!(Window::packets(u32::MAX), Window::MAX);
        assert_eq!(Window::MAX.grown(Real::MAX), Window::MAX);
        assert_eq!(Window::MAX.shrunk(Real::MAX), Window::packets(1));
        assert_eq!(Window::packets(3).half().budget(), Budget { cwnd: 1 });
        assert_eq!(Window(0).budget(), Budget { cwnd: 1 });
        assert_eq!(Window::from_real(Window::packets(1_000_000).real()), Window::packets(1_000_000));
    }
}
