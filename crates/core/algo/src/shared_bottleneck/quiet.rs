//! Losses that no queue explains. The RFC does not consider them.
//!
//! A shared bottleneck loses packets because it is full, and the delays of all paths through it show its
//! queue. Paths that lose packets while their delays stay at their smallest lose them to something else, a
//! radio say, and their windows have nothing to do with each other. Then there is no movement of a queue that
//! could be compared. The times of the losses remain: a bottleneck with next to no queue would hit both paths
//! in the same moments.
//!
//! So two paths are apart if both were without a queue lately, have lost packets all the same, and have not
//! lost them at the same time: nearer to chance than to always. Where there is no queue and that is not
//! known, the interval changes nothing: paths that were apart stay apart until a queue shows.

use alloc::vec::Vec;

use super::correlation::Correlation;
use super::parameters::{M, QUIET_LOSSES_MIN, QUIET_MIN, QUIET_OF};
use super::stats::PathStats;

/// When a path was without a queue, and when it lost packets.
pub(super) struct PathLosses {
    /// Whether the path was without a queue lately.
    quiet: bool,
    /// The number of intervals in which the path lost packets without a queue.
    unexplained: usize,
    /// In which slots the path lost packets, newest first.
    slots: Vec<bool>,
}

impl PathLosses {
    pub(super) fn of(path: &PathStats) -> Self {
        let quiet = path.quiet();
        // A loss that is found now may have happened in the interval before.
        let calm = |i: usize| quiet[i] && quiet.get(i + 1).copied().unwrap_or(false);
        let unexplained =
            path.lost_in().take(M).enumerate().filter(|(i, lost)| lost.contains(&true) && calm(*i)).count();
        Self {
            quiet: quiet.iter().take(QUIET_OF).filter(|quiet| **quiet).count() >= QUIET_MIN,
            unexplained,
            slots: path.lost_in().flat_map(|lost| lost.iter().rev().copied()).collect(),
        }
    }

    /// Whether the path was without a queue lately.
    pub(super) const fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether the losses of the path are evidence.
    pub(super) const fn are_unexplained(&self) -> bool {
        self.quiet && self.unexplained >= QUIET_LOSSES_MIN
    }

    /// Returns what the losses of two paths show; `None` if at least one has a queue.
    pub(super) fn correlation(&self, other: &Self) -> Option<Correlation> {
        if !self.quiet || !other.quiet {
            return None;
        }
        let evidence = self.are_unexplained() && other.are_unexplained();
        let apart = evidence && self.is_by_chance_with(other) && other.is_by_chance_with(self);
        Some(if apart { Correlation::Uncorrelated } else { Correlation::NoQueue })
    }

    /// Whether losses coincide with those of the other path no more often than by chance: nearer to chance
    /// than to always.
    fn is_by_chance_with(&self, other: &Self) -> bool {
        let len = self.slots.len().min(other.slots.len());
        let near = |i: usize| other.slots[i.saturating_sub(1)..len.min(i + 2)].contains(&true);
        let (mut lost, mut both, mut near_all) = (0, 0, 0);
        for i in 0..len {
            let near = near(i);
            near_all += usize::from(near);
            lost += usize::from(self.slots[i]);
            both += usize::from(self.slots[i] && near);
        }
        // both/lost <= (near_all/len + 1)/2
        2 * both * len <= lost * (near_all + len)
    }
}
