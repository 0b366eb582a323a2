//! Congestion control: one subflow's window, with its siblings in view.
//!
//! The world calls [`Control::on_ack`] for what arrived and [`Control::on_congestion`] for each congestion
//! event (at most one a window), and hands over a [`Group`]: the published numbers of the subflows that may
//! share a bottleneck (same `group_id`), this one included. An algorithm never reaches into a connection. A
//! group with one member runs as ordinary single-path TCP.
//!
//! A controller is three things put together: a [`ClassicCc`] (window, ssthresh, timeouts: RFC 5681), a
//! [`SlowStart`] (how slow start grows and ends) and a [`CongestionAvoidance`] (how the window moves in
//! congestion avoidance and what a loss leaves). [`ALGORITHMS`] is the table of all rules, [`SLOW_STARTS`]
//! that of the slow starts; any name of the one goes with any of the other: `lia+hystart`. Command lines,
//! scenario files and documentation are made from these tables. ARCHITECTURE.md says how to add one.
//!
//! Nothing here allocates, panics or uses floating point: the same code runs inside the kernel.

mod classic_cc;
mod congestion_avoidance;
mod group;
mod loss_interval;
mod nmcc_decrease;
mod slow_start;

pub use classic_cc::{ClassicCc, State};
pub use congestion_avoidance::{CongestionAvoidance, WindowDelta};
pub use group::{Group, MEMBERS_MAX, SubflowStats, SubflowTerms};
pub use nmcc_decrease::{NmccDecrease, NmccFactors};
pub use slow_start::{FriendlySlowStart, Hystart, SLOW_STARTS, SlowStart, SlowStartInfo};

use crate::softfloat::Real;
use crate::{Span, Time};

/// A congestion window in packets, fixed point: 2⁻⁴⁰ packets a unit, so that the increment 1/w is exact to
/// 10⁻⁶ at a window of a million packets. At most 2²³ packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window(u64);

impl Window {
    /// Units a packet.
    pub const ONE: u64 = 1 << 40;
    /// None.
    pub const ZERO: Self = Self(0);
    /// The largest window.
    pub const MAX: Self = Self(Self::ONE << 23);

    /// `n` whole packets.
    #[must_use]
    pub const fn packets(n: u32) -> Self {
        let n = n as u64;
        Self(if n > 1 << 23 { Self::MAX.0 } else { n * Self::ONE })
    }
    /// `n` units.
    #[must_use]
    pub const fn from_units(n: u64) -> Self {
        Self(n)
    }
    /// How many units it is.
    #[must_use]
    pub const fn units(self) -> u64 {
        self.0
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
    /// Adjusted by `delta`, within one packet and [`Window::MAX`].
    #[must_use]
    pub fn adjusted_by(self, delta: WindowDelta) -> Self {
        let grown = self.grown(delta.increase);
        if delta.decrease.is_zero() { grown } else { grown.shrunk(delta.decrease) }
    }
    /// By how much this is more than `other`; zero if it is not.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
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
    /// The latest RTT among the packets that arrived; zero if none was measured.
    pub rtt: Span,
    /// The smallest RTT of this subflow in a long time, taken for that without queues; zero before the first.
    pub min_rtt: Span,
    /// Whether the window was the limit; if not, it must not grow (RFC 7661's concern).
    pub cwnd_limited: bool,
    /// Whether what arrived was asked before the last congestion event: the window does not grow then.
    pub recovering: bool,
}

/// Why a congestion event is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum CongestionCause {
    /// Packets were lost and others arrived: fast retransmit.
    Loss,
    /// Nothing arrived for a retransmission timeout.
    Timeout,
    /// The network marked a packet (ECN CE, RFC 3168).
    EcnCe,
}

/// A congestion event: input of [`Control::on_congestion`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CongestionEvent {
    /// When.
    pub now: Time,
    /// Why.
    pub cause: CongestionCause,
    /// Smoothed RTT of this subflow.
    pub srtt: Span,
}

/// Congestion control of one subflow. What it decides is its window: how many packets may be outstanding, at
/// least one.
pub trait Control {
    /// Packets arrived: the window from now on.
    fn on_ack(&mut self, ack: &Ack, group: &Group<'_>) -> u32;
    /// A congestion event: the window from now on.
    fn on_congestion(&mut self, event: &CongestionEvent, group: &Group<'_>) -> u32;
    /// The numbers to publish, given this subflow's smoothed RTT.
    fn stats(&self, srtt: Span) -> SubflowStats;
}

/// Bytes of a controller's state at most: what the kernel keeps for one in a socket (`icsk_ca_priv`).
pub const STATE_BYTES_MAX: usize = 104;

/// The table of all rules, as the argument of another macro: this file makes [`Algorithm`] and [`ALGORITHMS`]
/// of it, `anabranch-kernel` the functions of its eBPF programs. A rule, `file::Type`, has a line for each
/// algorithm that it is:
///
/// `"name" + default_slow_start = rule, "what it does", "where it comes from", linux = its_name;`
///
/// The name for Linux, which is also that of the eBPF function, is missing where there is no program of it.
#[doc(hidden)]
#[macro_export]
macro_rules! algorithm_table {
    ($then:ident) => {
        $then! {
            nmcc::Nmcc {
                "nmcc" + friendly = Nmcc::new(NmccDecrease::Balanced),
                    "coupled: together as aggressive as one TCP on the best path, from slow start on",
                    "Thomas, dissertation, section 4.2.2; its decrease balanced by us: control/nmcc_decrease.rs",
                    linux = nmcc;
                "nmcc-printed" + friendly = Nmcc::new(NmccDecrease::Printed),
                    "NMCC with the threshold factor as printed: takes too little beside single TCPs",
                    "Thomas, dissertation, section 4.2.2";
                "nmcc-half" + friendly = Nmcc::new(NmccDecrease::Half),
                    "NMCC without the threshold factor: each loss halves the window",
                    "Thomas, dissertation, section 4.2.2, equations (4.5) to (4.11)",
                    linux = nmcc_half;
            }
            nmcc_cubic::NmccCubic {
                "nmcc-cubic" + standard = NmccCubic::new(),
                    "NMCC with the moves of CUBIC, for senders that are CUBIC themselves; CUBIC where no queue is",
                    "Thomas, dissertation, section 4.2.2; RFC 9438; together by us: control/nmcc_cubic.rs";
            }
            lia::Lia {
                "lia" + standard = Lia,
                    "coupled: together as much as one TCP on the best path, never more than TCP on any",
                    "RFC 6356",
                    linux = lia;
            }
            olia::Olia {
                "olia" + standard = Olia::new(),
                    "coupled: opportunistic linked increases; moves windows towards the best paths",
                    "draft-khalili-mptcp-congestion-control-05; Khalili et al., CoNEXT 2012",
                    linux = olia;
            }
            balia::Balia {
                "balia" + standard = Balia,
                    "coupled: balanced linked adaptation, between LIA and OLIA",
                    "draft-walid-mptcp-congestion-control-04; Peng et al., ToN 2016",
                    linux = balia;
            }
            wvegas::Wvegas {
                "wvegas" + standard = Wvegas::new(),
                    "coupled by delay: keeps a few packets queued, shared out over the paths by their rate",
                    "Cao, Xu and Fu, ICNP 2012",
                    linux = wvegas;
            }
            ewtcp::Ewtcp {
                "ewtcp" + standard = Ewtcp,
                    "equally weighted: each of n subflows gets 1/n of a TCP, wherever it goes",
                    "Honda et al., PFLDNeT 2009; Wischik et al., NSDI 2011, with a = 1/n²",
                    linux = ewtcp;
            }
            coupled::Coupled {
                "coupled" + standard = Coupled,
                    "fully coupled: one TCP over all paths, which ends up on the least congested ones only",
                    "Wischik et al., NSDI 2011, section 2.2",
                    linux = coupled;
            }
            reno::Reno {
                // Linux has a `reno` of its own.
                "reno" + standard = Reno,
                    "uncoupled: each subflow is a TCP of its own",
                    "RFC 5681, RFC 6928",
                    linux = reno_anb;
            }
            cubic::Cubic {
                "cubic" + standard = Cubic::new(),
                    "uncoupled: each subflow is a CUBIC of its own, as most of the Internet",
                    "RFC 9438";
            }
        }
    };
}

/// Makes a module of each file, the closed enum [`Algorithm`] of all rules, and [`ALGORITHMS`].
macro_rules! algorithms {
    ($($file:ident::$rule:ident { $(
        $name:literal + $start:ident = $make:expr, $title:literal, $source:literal $(, linux = $linux:ident)?;
    )+ })+) => {
        $(
            mod $file;
            pub use $file::$rule;
            const _: () = assert!(size_of::<ClassicCc<$rule>>() <= STATE_BYTES_MAX);
        )+

        /// The algorithm of one subflow: a closed set, so that a table of subflows is a plain array.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Algorithm {
            $(
                #[doc = concat!("A [`ClassicCc`] with the rule [`", stringify!($rule), "`].")]
                $rule(ClassicCc<$rule>),
            )+
        }

        impl Control for Algorithm {
            #[inline]
            fn on_ack(&mut self, ack: &Ack, group: &Group<'_>) -> u32 {
                match self { $(Self::$rule(cc) => cc.on_ack(ack, group),)+ }
            }
            #[inline]
            fn on_congestion(&mut self, event: &CongestionEvent, group: &Group<'_>) -> u32 {
                match self { $(Self::$rule(cc) => cc.on_congestion(event, group),)+ }
            }
            #[inline]
            fn stats(&self, srtt: Span) -> SubflowStats {
                match self { $(Self::$rule(cc) => cc.stats(srtt),)+ }
            }
        }

        impl Algorithm {
            /// The world has set window and ssthresh itself, both in packets: see [`ClassicCc::set_window`].
            #[inline]
            pub fn set_window(&mut self, cwnd: u32, ssthresh: Option<u32>) {
                match self { $(Self::$rule(cc) => cc.set_window(cwnd, ssthresh),)+ }
            }
        }

        /// Every algorithm there is; the first is the default.
        pub const ALGORITHMS: &[AlgorithmInfo] = &[$($(AlgorithmInfo {
            name: $name,
            title: $title,
            source: $source,
            slow_start: stringify!($start),
            linux: { let name: &[&'static str] = &[$(stringify!($linux))?]; name.first().copied() },
            reno_alone: !<$rule as CongestionAvoidance>::APPLIES_ALONE,
            make: |start| Algorithm::$rule(ClassicCc::new($make, start)),
        },)+)+];
    };
}

algorithm_table!(algorithms);

impl Algorithm {
    /// A fresh machine by name: one of [`ALGORITHMS`], as `lia`, or with a slow start of [`SLOW_STARTS`], as
    /// `lia+hystart`. `None` if there is no such name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        let (rule, start) = name.split_once('+').map_or((name, None), |(rule, start)| (rule, Some(start)));
        let entry = ALGORITHMS.iter().find(|entry| entry.name == rule)?;
        SlowStart::by_name(start.unwrap_or(entry.slow_start)).map(entry.make)
    }
}

/// A row of [`ALGORITHMS`].
#[derive(Clone, Copy, Debug)]
pub struct AlgorithmInfo {
    /// What it is called on a command line: lower case, unique.
    pub name: &'static str,
    /// What it does, in a line.
    pub title: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Its slow start unless another is asked for: a name of [`SLOW_STARTS`].
    pub slow_start: &'static str,
    /// What it is called in Linux once its eBPF program is loaded; `None` if there is no program of it.
    pub linux: Option<&'static str>,
    /// Whether a subflow that is alone runs Reno, step by step.
    pub reno_alone: bool,
    /// A fresh machine with its defaults and that slow start.
    pub make: fn(SlowStart) -> Algorithm,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn table() {
        for (i, entry) in ALGORITHMS.iter().enumerate() {
            let default = Algorithm::by_name(entry.name).expect("a name of the table");
            assert!(ALGORITHMS.iter().skip(i + 1).all(|other| other.name != entry.name));
            assert!(!entry.name.contains('+') && !entry.source.is_empty());
            let fresh = default.stats(Span::ZERO);
            assert_eq!((fresh.cwnd, fresh.slow_start, fresh.loss_interval), (INITIAL_WINDOW, true, 0));
            for start in SLOW_STARTS {
                let named = Algorithm::by_name(&format!("{}+{}", entry.name, start.name));
                assert_eq!(named, Some((entry.make)((start.make)())));
                assert_eq!(named == Some(default), start.name == entry.slow_start);
            }
        }
        let friendly = SlowStart::Friendly(FriendlySlowStart::default());
        assert_eq!(
            Algorithm::by_name("nmcc"),
            Some(Algorithm::Nmcc(ClassicCc::new(Nmcc::default(), friendly)))
        );
        for wrong in ["Cubic", "", "+", "lia+", "+hystart", "lia+hystart+hystart", "lia+lia"] {
            assert_eq!(Algorithm::by_name(wrong), None);
        }
    }

    #[test]
    fn windows() {
        assert_eq!(Window::packets(u32::MAX), Window::MAX);
        assert_eq!(Window::MAX.grown(Real::MAX), Window::MAX);
        assert_eq!(Window::MAX.shrunk(Real::MAX), Window::packets(1));
        assert_eq!(Window::packets(3).half().floor(), 1);
        assert_eq!(Window::from_real(Window::packets(1_000_000).real()), Window::packets(1_000_000));
    }
}
