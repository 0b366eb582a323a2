//! Who decides which paths are coupled, and what is done when the detector has decided.

use anabranch_algo::Time;
use anabranch_algo::shared_bottleneck::Detector;

use super::api::Event;
use super::grouping::{GroupDetector, Grouping};
use super::item::PathId;
use super::path::Path;
use super::state::Subscriber;

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

    /// Puts a path into another group than the one that it was made with.
    pub fn set_group(&mut self, path: PathId, group: u32) {
        let Some(path) = self.paths.get_mut(path) else { return };
        path.set_configured_group(group);
        match self.group_detector.mode {
            Grouping::Given => path.group = group,
            Grouping::Auto => self.group_detector.stale = true,
        }
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

    /// Puts the newest path where it starts, which is no news. What it does to others is, at the next
    /// opportunity.
    pub(super) fn group_new_path(&mut self) {
        if self.group_detector.mode == Grouping::Auto
            && let (Some(number), Some(path)) = (self.numbers().last(), self.paths.last_mut())
        {
            path.group = *number;
        }
    }

    /// The groups by the detector: numbered from 0, in the order of the first path of each.
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

    /// Asks the detector, if it is to be asked.
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
