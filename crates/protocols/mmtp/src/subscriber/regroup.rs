//! Applies the choice of how paths are coupled, and the detector's decisions.

use anabranch_algo::Time;
use anabranch_algo::shared_bottleneck::Detector;

use super::api::Event;
use super::grouping::{GroupDetector, Grouping};
use super::item::PathId;
use super::path::Path;
use super::state::Subscriber;

impl Subscriber {
    /// Sets whether paths are grouped as given or by their behaviour. At first they are grouped as given.
    pub fn set_grouping(&mut self, grouping: Grouping) {
        if grouping == Grouping::Given {
            self.paths.iter_mut().for_each(|path| path.group = path.configured_group());
        }
        self.group_detector.stale = grouping == Grouping::Auto;
        self.group_detector.mode = grouping;
        self.dirty = true;
    }

    /// Puts a path into another group than the one it was created with.
    pub fn set_group(&mut self, path: PathId, group: u32) {
        let Some(path) = self.paths.get_mut(path) else { return };
        path.set_configured_group(group);
        match self.group_detector.mode {
            Grouping::Given => path.group = group,
            Grouping::Auto => self.group_detector.stale = true,
        }
        self.dirty = true;
    }

    /// Returns how the coupled paths are chosen.
    #[must_use]
    pub const fn grouping(&self) -> Grouping {
        self.group_detector.mode
    }

    /// Returns the detector of shared bottlenecks, which uses the path numbers of this subscriber. It knows
    /// nothing under [`Grouping::Given`].
    #[must_use]
    pub const fn detector(&self) -> &Detector {
        &self.group_detector.detector
    }

    /// Puts the newest path into its first group without reporting an event. The groups of other paths change
    /// at the next opportunity.
    pub(super) fn group_new_path(&mut self) {
        if self.group_detector.mode == Grouping::Auto
            && let (Some(number), Some(path)) = (self.numbers().last(), self.paths.last_mut())
        {
            path.group = *number;
        }
    }

    /// Returns the detector's groups, numbered from 0 in the order of the first path of each.
    fn numbers(&self) -> Vec<u32> {
        let mut names: Vec<(u32, u32)> = Vec::new();
        let number = |(path, detected): (&Path, &u32)| {
            let name = (path.configured_group(), *detected);
            let number = names.iter().position(|n| *n == name).unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            });
            number as u32
        };
        self.paths.iter().zip(self.group_detector.detector.groups()).map(number).collect()
    }

    /// Asks the detector for new groups, if paths are grouped by it, and reports changes.
    pub(super) fn regroup(&mut self, now: Time) {
        let GroupDetector { mode, detector, stale } = &mut self.group_detector;
        if *mode == Grouping::Given {
            return;
        }
        if detector.tick(now).is_none() && !std::mem::take(stale) {
            return;
        }
        *stale = false;
        let groups = self.numbers();
        if self.paths.iter().zip(&groups).any(|(path, group)| path.group != *group) {
            self.paths.iter_mut().zip(&groups).for_each(|(path, group)| path.group = *group);
            self.events.push_back(Event::Groups { groups });
        }
    }
}
