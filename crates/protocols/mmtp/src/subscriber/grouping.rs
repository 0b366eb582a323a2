//! Decides which paths are coupled: as given, or those that seem to share a bottleneck
//! ([`anabranch_algo::shared_bottleneck`]).

use anabranch_algo::shared_bottleneck::Detector;
use anabranch_algo::{Span, Time};

use super::item::{PATHS_MAX, PathId};

const _: () = assert!(
    PATHS_MAX <= anabranch_algo::shared_bottleneck::PATHS_MAX,
    "every path has a place in the detector"
);

/// How the coupled paths are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// As [`PathConfig::group`](super::PathConfig::group) says: paths with the same number are coupled.
    #[default]
    Given,
    /// Among paths with the same number, those that seem to share a bottleneck are coupled. Paths over
    /// different [uplinks](super::PathConfig::uplink) are coupled once their delays rise and fall together.
    /// Others are coupled until their delays and losses show for some seconds that they pass different
    /// bottlenecks.
    Auto,
}

/// The detector of shared bottlenecks, and whether it is used.
#[derive(Default)]
pub(super) struct GroupDetector {
    pub(super) mode: Grouping,
    pub(super) detector: Detector,
    /// Whether the groups must be numbered anew.
    pub(super) stale: bool,
}

impl GroupDetector {
    pub(super) fn add_path(&mut self, uplink: Option<u32>) {
        let index = self.detector.add(uplink);
        debug_assert!(index.is_some(), "as many places as paths");
    }

    /// Forgets the measurements of a path, which may be in another network now.
    pub(super) fn reset_path(&mut self, p: PathId) {
        self.detector.reset(p);
        // A path that restarts is in the group it was created with.
        self.stale = self.mode == Grouping::Auto;
    }

    /// Records that the first packet of an answer came `took` after its request. Packets behind it are no
    /// samples, because their delay includes the time of the packets before them. `rtt_min` is the smallest
    /// round trip.
    pub(super) fn sample(&mut self, p: PathId, now: Time, took: Span, rtt_min: Span) {
        if self.mode == Grouping::Auto {
            self.detector.rtt_min(p, rtt_min);
            self.detector.sample(p, now, took);
        }
    }

    pub(super) fn delivered(&mut self, p: PathId, packets: u32) {
        if self.mode == Grouping::Auto {
            self.detector.delivered(p, packets);
        }
    }

    pub(super) fn lost(&mut self, p: PathId, packets: u32) {
        if self.mode == Grouping::Auto {
            self.detector.lost(p, packets);
        }
    }

    pub(super) fn deadline(&self) -> Time {
        if self.mode == Grouping::Auto { self.detector.deadline() } else { Time::NEVER }
    }
}
