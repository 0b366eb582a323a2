//! Which paths are coupled: as given, or those that seem to share a bottleneck ([`algo::shared_bottleneck`]).

use algo::shared_bottleneck::Detector;
use algo::{Span, Time};

use super::item::{PATHS_MAX, PathId};
use super::{Event, Subscriber};

const _: () =
    assert!(PATHS_MAX <= algo::shared_bottleneck::PATHS_MAX, "every path has a place in the detector");

/// Who decides which paths are coupled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// [`PathConfig::group`](super::PathConfig::group): paths with the same number.
    #[default]
    Given,
    /// Of those with the same number, the paths whose delays and losses do not show for some seconds that
    /// they pass different bottlenecks.
    Auto,
}

/// The detector, and whether anybody asks it.
#[derive(Default)]
pub(super) struct GroupDetector {
    mode: Grouping,
    detector: Detector,
    /// Numbers are to be given anew.
    stale: bool,
}

impl GroupDetector {
    pub(super) fn add_path(&mut self) {
        let index = self.detector.add();
        debug_assert!(index.is_some(), "as many places as paths");
    }

    /// The path is in another network now, perhaps.
    pub(super) fn reset_path(&mut self, p: PathId) {
        self.detector.reset(p);
        // A path that restarts is in the group it was made with.
        self.stale = self.mode == Grouping::Auto;
    }

    /// The first packet of an answer came so long after the request. Those behind it have waited for each
    /// other too, which says nothing about the path.
    pub(super) fn sample(&mut self, p: PathId, now: Time, took: Span) {
        if self.mode == Grouping::Auto {
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

impl Subscriber {
    /// Lets paths be grouped as given, or by what they do. At first: as given.
    pub fn set_grouping(&mut self, grouping: Grouping) {
        if grouping == Grouping::Given {
            self.paths.iter_mut().for_each(|path| path.group = path.configured_group());
        }
        self.group_detector.stale = grouping == Grouping::Auto;
        self.group_detector.mode = grouping;
        self.dirty = true;
    }

    /// Who decides which paths are coupled.
    #[must_use]
    pub const fn grouping(&self) -> Grouping {
        self.group_detector.mode
    }

    /// What is known of the paths' bottlenecks; nothing under [`Grouping::Given`]. Paths are numbered as
    /// here.
    #[must_use]
    pub const fn detector(&self) -> &Detector {
        &self.group_detector.detector
    }

    /// Asks the detector, if it is to be asked, and numbers the groups: from 0, in the order of the first
    /// path of each.
    pub(super) fn regroup(&mut self, now: Time) {
        let GroupDetector { mode, detector, stale } = &mut self.group_detector;
        if *mode == Grouping::Given {
            return;
        }
        if detector.tick(now).is_none() && !std::mem::take(stale) {
            return;
        }
        *stale = false;
        let mut names: Vec<(u32, u32)> = Vec::new();
        let mut changed = false;
        for (path, detected) in self.paths.iter_mut().zip(detector.groups()) {
            let name = (path.configured_group(), *detected);
            let number = names.iter().position(|n| *n == name).unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            });
            changed |= path.group != number as u32;
            path.group = number as u32;
        }
        if changed {
            let groups = self.paths.iter().map(|path| path.group).collect();
            self.events.push_back(Event::Groups { groups });
        }
    }
}
