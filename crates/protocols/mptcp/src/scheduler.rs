//! Decides which subflow carries which data.
//!
//! The connection shows the scheduler the numbers of its subflows and asks for one; the scheduler never
//! reaches into a subflow. Each scheduler has a file; [`SCHEDULERS`] is the table of all.

mod blest;
mod ecf;
mod min_rtt;
mod redundant;
mod round_robin;
mod view;

pub use blest::Blest;
pub use ecf::Ecf;
pub use min_rtt::MinRtt;
pub use redundant::Redundant;
pub use round_robin::RoundRobin;
pub use view::{PathView, Schedule, Work};

/// Makes the closed set of schedulers and their table.
macro_rules! schedulers {
    ($($kind:ident { $name:literal, $title:literal, $source:literal })+) => {
        /// The name of a scheduler.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum SchedulerKind {
            $(#[doc = $title] $kind,)+
        }

        /// A scheduler with its state.
        #[derive(Clone, Debug)]
        pub enum Scheduler {
            $(#[doc = $title] $kind($kind),)+
        }

        impl SchedulerKind {
            /// Creates a scheduler of this kind.
            #[must_use]
            pub fn make(self) -> Scheduler {
                match self { $(Self::$kind => Scheduler::$kind($kind::default()),)+ }
            }
        }

        impl Schedule for Scheduler {
            fn pick(&mut self, work: &Work, paths: &[PathView]) -> Option<usize> {
                match self { $(Self::$kind(scheduler) => scheduler.pick(work, paths),)+ }
            }
            fn is_redundant(&self) -> bool {
                match self { $(Self::$kind(scheduler) => scheduler.is_redundant(),)+ }
            }
        }

        /// All schedulers; the first is the default.
        pub const SCHEDULERS: &[SchedulerInfo] = &[$(SchedulerInfo {
            name: $name,
            title: $title,
            source: $source,
            kind: SchedulerKind::$kind,
        },)+];
    };
}

/// A row of [`SCHEDULERS`].
#[derive(Clone, Copy, Debug)]
pub struct SchedulerInfo {
    /// The name: lower case, unique.
    pub name: &'static str,
    /// A short description.
    pub title: &'static str,
    /// The paper or implementation from which the scheduler comes.
    pub source: &'static str,
    /// The kind that this row describes.
    pub kind: SchedulerKind,
}

schedulers! {
    MinRtt { "minrtt", "the subflow with the shortest round trip that has room", "Linux MPTCP 0.9x, default" }
    RoundRobin { "roundrobin", "all subflows with room in turn", "Linux MPTCP 0.9x, roundrobin" }
    Blest {
        "blest",
        "as minrtt, but nothing on a subflow whose data would block a faster one",
        "Ferlin et al., IFIP Networking 2016"
    }
    Ecf {
        "ecf",
        "as minrtt, but waits for a faster subflow that would be done sooner",
        "Lim et al., CoNEXT 2017"
    }
    Redundant { "redundant", "everything on each subflow", "Froemmgen et al., ReMP TCP, ICC 2016" }
}

impl SchedulerKind {
    /// Returns the scheduler of this name, or `None` if there is none.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        SCHEDULERS.iter().find(|row| row.name == name).map(|row| row.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_algo::{Span, Time};

    fn path(slot: usize, srtt_ms: u64) -> PathView {
        PathView {
            slot,
            srtt: Span::from_millis(srtt_ms),
            rttvar: Span::from_millis(srtt_ms / 8),
            cwnd: 10,
            in_flight: 0,
            mss_bytes: 1_400,
            has_room: true,
            backup: false,
            has_carried: false,
            is_silent: false,
        }
    }

    const WORK: Work = Work {
        now: Time::ZERO,
        is_reinjection: false,
        unsent_bytes: 100_000,
        window_bytes: 1_000_000,
        reinjections: 0,
    };

    fn picks(kind: SchedulerKind, paths: &[PathView], count: usize) -> Vec<Option<usize>> {
        let mut scheduler = kind.make();
        (0..count).map(|_| scheduler.pick(&WORK, paths)).collect()
    }

    #[test]
    fn the_shortest_round_trip_with_room() {
        let (near, far) = (path(1, 10), path(0, 50));
        assert_eq!(picks(SchedulerKind::MinRtt, &[far, near], 1), [Some(1)]);
        let full = PathView { has_room: false, ..near };
        assert_eq!(picks(SchedulerKind::MinRtt, &[far, full], 1), [Some(0)]);
        assert_eq!(picks(SchedulerKind::MinRtt, &[full], 1), [None]);
    }

    #[test]
    fn blest_keeps_the_window_for_the_fast_path() {
        let (full, slow) = (PathView { has_room: false, ..path(0, 10) }, path(1, 100));
        // In ten rounds the fast path could send (10 + 4.5) · 10 packets of 1,400 bytes, times 1.19.
        for (window_bytes, picked) in [(241_570 + 1_400, Some(1)), (241_569 + 1_400, None)] {
            let work = Work { window_bytes, now: Time::ZERO + Span::from_secs(1), ..WORK };
            assert_eq!(SchedulerKind::Blest.make().pick(&work, &[full, slow]), picked, "{window_bytes}");
        }
        // Data that is late already does not wait.
        let late = Work { window_bytes: 0, is_reinjection: true, ..WORK };
        assert_eq!(SchedulerKind::Blest.make().pick(&late, &[full, slow]), Some(1));
    }

    #[test]
    fn ecf_waits_for_the_path_that_is_done_first() {
        let (full, slow) = (PathView { has_room: false, ..path(0, 10) }, path(1, 100));
        // The fast path sends 14,000 bytes a round.
        for (unsent_bytes, picked) in
            [(14_000, None), (100_000, None), (143_000, Some(1)), (400_000, Some(1))]
        {
            let work = Work { unsent_bytes, ..WORK };
            assert_eq!(SchedulerKind::Ecf.make().pick(&work, &[full, slow]), picked, "{unsent_bytes}");
        }
        // The paths are alike, so there is nothing to wait for.
        let alike = path(1, 12);
        assert_eq!(SchedulerKind::Ecf.make().pick(&WORK, &[full, alike]), Some(1));
    }

    #[test]
    fn in_turn() {
        let paths = [path(0, 10), path(2, 500), path(5, 20)];
        let wanted = [Some(0), Some(2), Some(5), Some(0), Some(2)];
        assert_eq!(picks(SchedulerKind::RoundRobin, &paths, 5), wanted);
    }

    #[test]
    fn backups_and_silent_paths_are_spared() {
        for row in SCHEDULERS {
            assert_eq!(SchedulerKind::by_name(row.name), Some(row.kind));
            let (backup, far) = (PathView { backup: true, ..path(0, 1) }, path(1, 900));
            assert_eq!(picks(row.kind, &[backup, far], 2), [Some(1), Some(1)], "{}", row.name);
            assert_eq!(picks(row.kind, &[backup], 1), [Some(0)]);
            let silent = PathView { is_silent: true, ..far };
            assert_eq!(picks(row.kind, &[backup, silent], 1), [Some(0)]);
            // A subflow need not carry again the data that it has carried.
            assert_eq!(picks(row.kind, &[PathView { has_carried: true, ..far }], 1), [None]);
        }
    }
}
