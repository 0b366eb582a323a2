//! Detects which paths share a bottleneck, without being told: passively, from delays and losses (RFC 8382,
//! Hayes, Ferlin, Welzl, Hiorth: "Shared Bottleneck Detection for Coupled Congestion Control for RTP Media").
//!
//! Paths through one queue see the same queue. Every [`T`] the [`Detector`] summarises the delays of each
//! path over the last [`M`] intervals: their skewness, variability, frequency of oscillation, and the loss
//! (sections 3.2 and 4 of the RFC). Paths whose skewness or loss shows that they pass a bottleneck are
//! grouped by the similarity of these numbers (section 3.3.1): that is [`Detector::rfc8382_groups`].
//!
//! **Beyond the RFC: when to believe it.** The RFC compares statistics, not the delays themselves. So two
//! queues can look alike for a while, and one queue may look like two. The errors differ in cost: paths that
//! are coupled by mistake are slower than they could be; paths that are apart by mistake take more than their
//! share from other traffic. So the groups to act upon, [`Detector::groups`], start from the likely state.
//! Paths that leave this host by one *uplink* are together, and paths over different uplinks are apart,
//! because the bottleneck of a host with two uplinks is nearly always the uplink. From then on
//! * an interval has two paths together if their delays rise and fall together, and apart if the delays
//!   clearly go their own ways, at any of the scales of `shared_bottleneck/correlation.rs`, from [`T`] / 32
//!   on. In between the RFC decides: together if both are in one group; apart if one passes a bottleneck and
//!   the other passes none or is in another group. With too much noise to tell, they are together. If neither
//!   passes a bottleneck, the interval changes nothing. It changes nothing either for paths without a queue,
//!   except that they are apart if both lose packets all the same, and not at the same time
//!   (`shared_bottleneck/quiet.rs`);
//! * two paths come apart only when each of the last [`HOLD`] intervals had them apart, directly and through
//!   others; one interval that has them together joins them again;
//! * of two paths over different uplinks only the delays count: they are joined by the first interval in
//!   which the delays rise and fall together more than chance explains, once both have had delays for some
//!   intervals ([`SETTLED_MIN`]), and if the queues behind the delays were equally long, as one queue is for
//!   all: two equal links that fill at the same pace are told apart by it once one of them loses more.
//!   Neither losses nor similar statistics join them;
//! * a path of which too little is known ([`SAMPLES_MIN`], [`FILLED_MIN`]) is where paths start: together
//!   with those of its uplink, or with all paths if its uplink is unknown. So is a new path, or one that was
//!   [reset](Detector::reset);
//! * only a path that has carried nothing for [`M`] intervals is on its own: it takes nothing from other
//!   paths and shall not hold them together. Its first packet puts it back to where paths start.
//!
//! Delays are relative: any constant may be added to all delays of a path, and clocks need not agree. A
//! round-trip time will do as well, with the noise of the way there.

mod correlation;
mod hysteresis;
mod parameters;
mod queues;
mod quiet;
mod rfc8382;
mod stats;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use crate::{Span, Time};
use correlation::{Correlation, PathDeltas};
use hysteresis::{Hysteresis, PathEvidence};
pub use parameters::*;
use queues::RecentQueues;
use quiet::PathLosses;
use stats::PathStats;
pub use stats::SummaryStats;

/// Detects which paths share a bottleneck; see the [module](self). Costs a few additions a sample, and every
/// [`T`] a few sorts of the paths, [`HOLD`] passes over them and a comparison of some hundred numbers for
/// every two paths that are apart; 40 KiB a path.
#[derive(Clone, Debug)]
pub struct Detector {
    paths: Vec<PathStats>,
    hysteresis: Hysteresis,
    /// When the running interval ends; `None` before the first call.
    end: Option<Time>,
    rfc8382_groups: Vec<Option<u32>>,
    changed: bool,
}

impl Default for Detector {
    fn default() -> Self {
        Self::new()
    }
}

impl Detector {
    /// Creates a detector without paths.
    #[must_use]
    pub fn new() -> Self {
        Self::with_hold(HOLD)
    }

    /// Creates a detector without paths in which a split takes this many intervals: at least 1.
    #[must_use]
    pub fn with_hold(intervals: u32) -> Self {
        Self {
            paths: Vec::new(),
            hysteresis: Hysteresis::new(intervals),
            end: None,
            rfc8382_groups: Vec::new(),
            changed: false,
        }
    }

    /// Adds a path. Returns its number: 0, 1, 2 and so on; `None` if there are [`PATHS_MAX`] already. Until
    /// more is known, the path is together with the paths of the same `uplink`, the line by which it leaves
    /// this host. If one of two uplinks is unknown, their paths are together, too.
    pub fn add(&mut self, uplink: Option<u32>) -> Option<usize> {
        if self.paths.len() >= PATHS_MAX {
            return None;
        }
        self.paths.push(PathStats::default());
        self.rfc8382_groups.push(None);
        self.hysteresis.add(uplink);
        self.changed = true;
        Some(self.paths.len() - 1)
    }

    /// Forgets everything about a path except its uplink, because its address or network has changed.
    pub fn reset(&mut self, path: usize) {
        let Some(stats) = self.paths.get_mut(path) else { return };
        *stats = PathStats::default();
        // The groups that are left are numbered from 0 again.
        let summaries: Vec<SummaryStats> = self.paths.iter().map(PathStats::summary).collect();
        self.rfc8382_groups = rfc8382::group(&summaries);
        self.regroup(|hysteresis| hysteresis.forget(path));
    }

    /// Makes a change that may change the groups.
    fn regroup(&mut self, change: impl FnOnce(&mut Hysteresis)) {
        let before = self.groups().to_vec();
        change(&mut self.hysteresis);
        self.changed |= before != self.groups();
    }

    /// Records that a packet which came over `path` took `delay`, plus any constant.
    pub fn sample(&mut self, path: usize, now: Time, delay: Span) {
        self.advance_to(now);
        let Some(stats) = self.paths.get_mut(path) else { return };
        let left = self.end.map_or(T, |end| end.since(now)).as_nanos().clamp(1, T.as_nanos());
        let part = PARTS - 1 - ((left - 1) * PARTS as u64 / T.as_nanos()) as usize;
        stats.sample(part, delay);
        if stats.is_absent() {
            // The path is back, and nothing is known of it.
            self.regroup(|hysteresis| hysteresis.forget(path));
        }
    }

    /// Sets the smallest round-trip time known of `path`. Without it, losses that no queue explains do not
    /// count.
    pub fn rtt_min(&mut self, path: usize, rtt: Span) {
        if let Some(stats) = self.paths.get_mut(path) {
            stats.set_rtt_min(rtt);
        }
    }

    /// Records that `packets` packets came over `path`.
    pub fn delivered(&mut self, path: usize, packets: u32) {
        if let Some(stats) = self.paths.get_mut(path) {
            stats.delivered(packets);
        }
    }

    /// Records that `packets` packets were lost on `path`.
    pub fn lost(&mut self, path: usize, packets: u32) {
        if let Some(stats) = self.paths.get_mut(path) {
            stats.lost(packets);
        }
    }

    /// Ends the intervals that are over by `now`. Returns the groups if they have changed since the last
    /// call. May be called at any time, best at the [deadline](Self::deadline).
    pub fn tick(&mut self, now: Time) -> Option<&[u32]> {
        self.advance_to(now);
        core::mem::take(&mut self.changed).then_some(self.hysteresis.groups())
    }

    /// Returns when the running interval ends; [`Time::NEVER`] before the first sample or tick.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.end.unwrap_or(Time::NEVER)
    }

    /// Returns the groups to act upon: paths with the same number may share a bottleneck. Groups are numbered
    /// from 0 in the order of the first path of each.
    #[must_use]
    pub fn groups(&self) -> &[u32] {
        self.hysteresis.groups()
    }

    /// Returns the RFC's own grouping (section 3.3.1) of the last interval, numbered in the same way; `None`
    /// for a path that passes no bottleneck or had no samples.
    #[must_use]
    pub fn rfc8382_groups(&self) -> &[Option<u32>] {
        &self.rfc8382_groups
    }

    /// Returns the estimates for a path, as of the last interval.
    #[must_use]
    pub fn summary(&self, path: usize) -> Option<SummaryStats> {
        self.paths.get(path).map(PathStats::summary)
    }

    /// Returns the correlation of the changes of two paths' mean delays from interval to interval, −100 to
    /// 100 percent; `None` if there is too little to tell.
    #[must_use]
    pub fn correlation_percent(&self, path: usize, other: usize) -> Option<i64> {
        PathDeltas::of(self.paths.get(path)?).correlation_percent(&PathDeltas::of(self.paths.get(other)?))
    }

    fn advance_to(&mut self, now: Time) {
        let end = *self.end.get_or_insert(now + T);
        if now.since(end) > T.times(N as u64) {
            // No call came for longer than the memory reaches.
            self.paths.fill(PathStats::default());
            self.rfc8382_groups.fill(None);
            self.regroup(Hysteresis::forget_all);
            self.end = Some(now + T);
            return;
        }
        while let Some(end) = self.end.filter(|end| *end <= now && *end < Time::NEVER) {
            self.close();
            self.end = Some(end + T);
        }
    }

    /// Ends an interval.
    fn close(&mut self) {
        let summaries: Vec<SummaryStats> = self.paths.iter_mut().map(PathStats::close).collect();
        self.rfc8382_groups = rfc8382::group(&summaries);
        let losses: Vec<PathLosses> = self.paths.iter().map(PathLosses::of).collect();
        let evidence: Vec<_> = (self.paths.iter().zip(&self.rfc8382_groups).zip(&losses))
            .map(|((path, group), losses)| path_evidence(path, *group, losses))
            .collect();
        let deltas: Vec<PathDeltas> = self.paths.iter().map(PathDeltas::of).collect();
        let queues: Vec<RecentQueues> = self.paths.iter().map(RecentQueues::of).collect();
        let correlation = |a: usize, b: usize| match deltas[a].correlation(&deltas[b]) {
            Correlation::Correlated => {
                let queue = !losses[a].is_quiet() && !losses[b].is_quiet();
                let clear =
                    queue && queues[a].may_be_one_with(&queues[b]) && deltas[a].is_clearly_like(&deltas[b]);
                if clear { Correlation::ClearlyCorrelated } else { Correlation::Correlated }
            }
            Correlation::Uncorrelated => Correlation::Uncorrelated,
            other => match losses[a].correlation(&losses[b]) {
                Some(Correlation::Uncorrelated) if deltas[a].is_like(&deltas[b]) => Correlation::Unknown,
                said => said.unwrap_or(other),
            },
        };
        self.regroup(|hysteresis| hysteresis.step(&evidence, correlation));
    }
}

fn path_evidence(path: &PathStats, group: Option<u32>, losses: &PathLosses) -> PathEvidence {
    if path.is_absent() {
        return PathEvidence::Absent;
    }
    let summary = path.summary();
    if summary.samples < SAMPLES_MIN || (summary.filled < FILLED_MIN && !losses.are_unexplained()) {
        return if summary.filled < SETTLED_MIN { PathEvidence::New } else { PathEvidence::Unknown };
    }
    group.map_or(PathEvidence::NoBottleneck, PathEvidence::Group)
}
