//! Controls congestion: a controller decides the window of one subflow and reads the numbers of its siblings.
//!
//! The world calls [`Control::on_ack`] for packets that arrived and [`Control::on_congestion`] for each
//! congestion event (at most one a window). It hands over a [`Group`]: the published numbers of the subflows
//! that may share a bottleneck (same `group_id`), including this subflow. An algorithm never reaches into a
//! connection. A group with one member runs as ordinary single-path TCP.
//!
//! Most controllers consist of three parts: a [`ClassicCc`] (window, ssthresh, timeouts: RFC 5681), a
//! [`SlowStart`] (how slow start grows and ends) and a [`CongestionAvoidance`] (how the window moves in
//! congestion avoidance and how far a loss reduces it). [`ALGORITHMS`] is the table of all rules and
//! [`SLOW_STARTS`] the table of all slow starts; each rule can be combined with each slow start, as in
//! `lia+hystart`. [`Bbr`] is the exception: it has its own start and a [pace](Control::pace). Command lines,
//! scenario files and documentation are made from these tables. `crates/core/algo/README.md` says how to add
//! an algorithm.
//!
//! Nothing here allocates, panics or uses floating point: the same code runs inside the kernel.

mod bbr;
mod classic_cc;
mod congestion_avoidance;
mod feedback;
mod friendliness;
mod group;
mod loss_interval;
mod nmcc_decrease;
mod slow_start;
mod state;
mod window;

pub use bbr::Bbr;
pub use classic_cc::ClassicCc;
pub use congestion_avoidance::CongestionAvoidance;
pub use feedback::{Ack, CongestionCause, CongestionEvent, Control, Flight};
pub use group::{Group, MEMBERS_MAX, SubflowStats, SubflowTerms};
pub use nmcc_decrease::NmccFactors;
pub use slow_start::{FriendlySlowStart, Hystart, SLOW_STARTS, SlowStart, SlowStartInfo};
pub use state::State;
pub use window::{INITIAL_WINDOW, Window, WindowDelta};

use crate::Span;

/// The largest size of a controller's state, in bytes: Linux reserves this room in a socket (`icsk_ca_priv`).
pub const STATE_BYTES_MAX: usize = 104;

/// Passes the table of all rules to another macro. This file makes [`Algorithm`] and [`ALGORITHMS`] from it,
/// and `anabranch-kernel` the functions of its eBPF programs. A rule, `file::Type`, has a line for each
/// algorithm that it implements:
///
/// `"name" + default_slow_start = rule, "what it does", "where it comes from", linux = its_name;`
///
/// The name for Linux is missing where no eBPF program exists for the algorithm.
#[doc(hidden)]
#[macro_export]
macro_rules! algorithm_table {
    ($then:ident) => {
        $then! {
            cubic_coupled::CubicCoupled {
                "cubic-coupled" + friendly = CubicCoupled::new(),
                    "coupled: together what one CUBIC flow takes on the best path; fast on idle links too",
                    "ours, from RFC 9438: control/cubic_coupled.rs",
                    linux = cubic_coupled;
            }
            nmcc::Nmcc {
                "nmcc" + friendly = Nmcc::new(),
                    "coupled: together as aggressive as one TCP on the best path, from slow start on",
                    "Thomas, dissertation, section 4.2.2",
                    linux = nmcc;
                // This algorithm exists for figure 4.9 only: see `Nmcc::without_threshold_factor`.
                "nmcc-without-mt" + friendly = Nmcc::without_threshold_factor(),
                    "NMCC without its threshold factor, for the figure that shows what that is for",
                    "Thomas, dissertation, Fig. 4.9, row 1";
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
            ledbat::Ledbat {
                "ledbat-pp" + ledbat = Ledbat::new(),
                    "a scavenger: yields to everything that queues, and keeps queues short; coupled by us",
                    "draft-irtf-iccrg-ledbat-plus-plus-06, RFC 6817: control/ledbat.rs";
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
                // Linux already has an algorithm `reno`.
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

/// Makes a module for each file, the closed enum [`Algorithm`] of all rules, and [`ALGORITHMS`].
macro_rules! algorithms {
    ($($file:ident::$rule:ident { $(
        $name:literal + $start:ident = $make:expr, $title:literal, $source:literal $(, linux = $linux:ident)?;
    )+ })+) => {
        $(
            mod $file;
            pub use $file::$rule;
            const _: () = assert!(size_of::<ClassicCc<$rule>>() <= STATE_BYTES_MAX);
        )+

        /// Holds the congestion control of one subflow. The set is closed, so that a table of subflows is a
        /// plain array.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(clippy::large_enum_variant, reason = "nothing is allocated here; a path has one of them")]
        pub enum Algorithm {
            $(
                #[doc = concat!("A [`ClassicCc`] with the rule [`", stringify!($rule), "`].")]
                $rule(ClassicCc<$rule>),
            )+
            /// A [`Bbr`], which follows a model of the path.
            Bbr(Bbr),
        }

        impl Control for Algorithm {
            #[inline]
            fn on_flight(&mut self, flight: &Flight) {
                if let Self::Bbr(bbr) = self {
                    bbr.on_flight(flight);
                }
            }
            #[inline]
            fn on_ack(&mut self, ack: &Ack, group: &Group<'_>) -> u32 {
                match self {
                    $(Self::$rule(cc) => cc.on_ack(ack, group),)+
                    Self::Bbr(bbr) => bbr.on_ack(ack, group),
                }
            }
            #[inline]
            fn on_congestion(&mut self, event: &CongestionEvent, group: &Group<'_>) -> u32 {
                match self {
                    $(Self::$rule(cc) => cc.on_congestion(event, group),)+
                    Self::Bbr(bbr) => bbr.on_congestion(event, group),
                }
            }
            #[inline]
            fn stats(&self, srtt: Span) -> SubflowStats {
                match self {
                    $(Self::$rule(cc) => cc.stats(srtt),)+
                    Self::Bbr(bbr) => bbr.stats(srtt),
                }
            }
            #[inline]
            fn pace(&self) -> Option<Span> {
                if let Self::Bbr(bbr) = self { bbr.pace() } else { None }
            }
        }

        impl Algorithm {
            /// Returns whether the algorithm is a scavenger: see [`CongestionAvoidance::YIELDS`].
            #[must_use]
            pub const fn yields(&self) -> bool {
                match self {
                    $(Self::$rule(_) => <$rule as CongestionAvoidance>::YIELDS,)+
                    Self::Bbr(_) => false,
                }
            }

            /// Takes over the window and ssthresh that the world has set itself, both in packets: see
            /// [`ClassicCc::set_window`].
            #[inline]
            pub fn set_window(&mut self, cwnd: u32, ssthresh: Option<u32>) {
                match self {
                    $(Self::$rule(cc) => cc.set_window(cwnd, ssthresh),)+
                    Self::Bbr(bbr) => bbr.set_window(cwnd),
                }
            }
        }

        /// Lists all algorithms; the first is the default.
        pub const ALGORITHMS: &[AlgorithmInfo] = &[$($(AlgorithmInfo {
            name: $name,
            title: $title,
            source: $source,
            slow_start: Some(stringify!($start)),
            linux: { let name: &[&'static str] = &[$(stringify!($linux))?]; name.first().copied() },
            reno_alone: !<$rule as CongestionAvoidance>::APPLIES_ALONE,
            make: |start| Algorithm::$rule(ClassicCc::new($make, start)),
        },)+)+ BBR, BBR_COUPLED];
    };
}

algorithm_table!(algorithms);

const BBR: AlgorithmInfo = AlgorithmInfo {
    name: "bbr",
    title: "uncoupled: paces at the rate that the path delivers, whatever is lost by chance",
    source: "after draft-ietf-ccwg-bbr: control/bbr.rs",
    slow_start: None,
    linux: None,
    reno_alone: false,
    make: |_| Algorithm::Bbr(Bbr::new()),
};

const BBR_COUPLED: AlgorithmInfo = AlgorithmInfo {
    name: "bbr-coupled",
    title: "coupled: the same, but the paths of a group probe for more at the same time, as one flow",
    source: "ours, from draft-ietf-ccwg-bbr: control/bbr.rs",
    make: |_| Algorithm::Bbr(Bbr::coupled()),
    ..BBR
};

impl Algorithm {
    /// Creates an algorithm by name. `name` is a name of [`ALGORITHMS`], such as `lia`; where the algorithm
    /// has no slow start of its own, a name of [`SLOW_STARTS`] may follow, as in `lia+hystart`. Returns
    /// `None` if the name does not exist.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        let (rule, start) = name.split_once('+').map_or((name, None), |(rule, start)| (rule, Some(start)));
        let entry = ALGORITHMS.iter().find(|entry| entry.name == rule)?;
        match entry.slow_start {
            Some(own) => SlowStart::by_name(start.unwrap_or(own)).map(entry.make),
            None => start.is_none().then(|| (entry.make)(SlowStart::Standard)),
        }
    }
}

/// Describes an algorithm: a row of [`ALGORITHMS`].
#[derive(Clone, Copy, Debug)]
pub struct AlgorithmInfo {
    /// The name on a command line: lower case, unique.
    pub name: &'static str,
    /// A description of the behaviour in one line.
    pub title: &'static str,
    /// The source: a paper, an RFC, or a file of ours.
    pub source: &'static str,
    /// The default slow start: a name of [`SLOW_STARTS`]. `None` if the algorithm has its own start; it then
    /// also has a [pace](Control::pace), without which it does not work.
    pub slow_start: Option<&'static str>,
    /// The name in Linux once the eBPF program is loaded; `None` if no such program exists.
    pub linux: Option<&'static str>,
    /// Whether a subflow that is alone in its group runs Reno, step by step.
    pub reno_alone: bool,
    /// Creates a controller with its defaults and the given slow start.
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
            assert_eq!(default.pace(), None, "there is no round-trip time yet");
            for start in SLOW_STARTS {
                let named = Algorithm::by_name(&format!("{}+{}", entry.name, start.name));
                assert_eq!(named, entry.slow_start.map(|_| (entry.make)((start.make)())));
                assert_eq!(named == Some(default), Some(start.name) == entry.slow_start);
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
}
