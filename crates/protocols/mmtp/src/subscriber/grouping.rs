//! Which paths are coupled: as given, or those that seem to share a bottleneck
//! ([`anabranch_algo::shared_bottleneck`]).

use anabranch_algo::shared_bottleneck::Detector;
use anabranch_algo::{Span, Time};

use super::item::{PATHS_MAX, PathId};

const _: () = assert!(
    PATHS_MAX <= anabranch_algo::shared_bottleneck::PATHS_MAX,
    "every path has a place in the detector"
);

/// Who decides which paths are coupled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// [`PathConfig::group`](super::PathConfig::group): paths with the same number.
    #[default]
    Given,
    /// Of those with the same number, the paths that seem to share a bottleneck: those of different
    /// [uplinks](super::PathConfig::uplink) once their delays rise and fall together, the others until their
    /// delays and losses show for some seconds that they pass different ones.
    Auto,
}

/// The detector, and whether anybody asks it.
#[derive(Default)]
pub(super) struct GroupDetector {
    pub(super) mode: Grouping,
    pub(super) detector: Detector,
    /// The groups are to be numbered anew.
    pub(super) stale: bool,
}

impl GroupDetector {
    pub(super) fn add_path(&mut self, uplink: Option<u32>) {
        let index = self.detector.add(uplink);
        debug_assert!(index.is_some(), "as many places as paths");
    }

    /// Forgets what is known of a path, which may be in another network now.
    pub(super) fn reset_path(&mut self, p: PathId) {
        self.detector.reset(p);
        // A path that restarts is in the group it was made with.
        self.stale = self.mode == Grouping::Auto;
    }

    /// The first packet of an answer took `took` from its request on. The packets behind it are no samples:
    /// their delay has the time of the packets before them in it. `rtt_min`: the smallest round trip.
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
