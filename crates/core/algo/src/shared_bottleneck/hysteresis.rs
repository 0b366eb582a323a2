//! Decides which paths are coupled, on top of the RFC's grouping.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::correlation::Correlation;

/// The evidence of one interval about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathEvidence {
    /// The path passes a bottleneck, together with the paths of the same number.
    Group(u32),
    /// Enough is known of the path, and it passes no bottleneck.
    NoBottleneck,
    /// Too little is known of the path.
    Unknown,
    /// Too little is known of the path, and it has only just begun.
    New,
    /// The path has carried nothing for long.
    Absent,
}

/// Two paths that an interval has together.
type Pair = (usize, usize);

/// The groups of paths, and the pairs of the last intervals from which they follow.
#[derive(Clone, Debug)]
pub(super) struct Hysteresis {
    /// The uplink of each path, if it is known.
    uplinks: Vec<Option<u32>>,
    /// The pairs of the last intervals, as many intervals as a split takes. The paths of an interval's pairs
    /// are together, directly or through others. The assumptions about a path are among the pairs of the
    /// interval in which it was added or forgotten, so they last as long as a split takes.
    history: VecDeque<Vec<Pair>>,
    hold: usize,
    /// The group of each path. Groups are numbered from 0 in the order of the first path of each.
    groups: Vec<u32>,
}

impl Hysteresis {
    pub(super) fn new(hold: u32) -> Self {
        let hold = (hold as usize).max(1);
        Self { uplinks: Vec::new(), history: VecDeque::new(), hold, groups: Vec::new() }
    }

    /// Returns the present groups.
    pub(super) fn groups(&self) -> &[u32] {
        &self.groups
    }

    /// Adds a path of which only the uplink is known, or not even that.
    pub(super) fn add(&mut self, uplink: Option<u32>) {
        self.uplinks.push(uplink);
        self.groups.push(0);
        self.forget(self.uplinks.len() - 1);
    }

    /// Forgets everything about a path except its uplink.
    pub(super) fn forget(&mut self, path: usize) {
        for pairs in &mut self.history {
            pairs.retain(|(a, b)| *a != path && *b != path);
        }
        let assumed: Vec<Pair> = (0..self.uplinks.len())
            .filter(|other| *other != path && self.start_together(path, *other))
            .map(|other| (path, other))
            .collect();
        match self.history.back_mut() {
            Some(newest) => newest.extend(assumed),
            None => self.history.push_back(assumed),
        }
        self.regroup();
    }

    /// Forgets everything about all paths except their uplinks.
    pub(super) fn forget_all(&mut self) {
        self.history.clear();
        (0..self.uplinks.len()).for_each(|path| self.forget(path));
    }

    /// Whether two paths are together while nothing is known of them: they are, unless they leave by
    /// different uplinks.
    fn start_together(&self, a: usize, b: usize) -> bool {
        self.uplinks[a].zip(self.uplinks[b]).is_none_or(|(a, b)| a == b)
    }

    /// Takes the evidence of one more interval about each path, and the correlation of every two paths.
    pub(super) fn step(
        &mut self,
        evidence: &[PathEvidence],
        correlation: impl FnMut(usize, usize) -> Correlation,
    ) {
        let pairs = self.pairs(evidence, correlation);
        if self.history.len() >= self.hold {
            self.history.pop_front();
        }
        self.history.push_back(pairs);
        self.regroup();
    }

    /// Returns the pairs that are together by the evidence of one interval.
    fn pairs(
        &self,
        evidence: &[PathEvidence],
        mut correlation: impl FnMut(usize, usize) -> Correlation,
    ) -> Vec<Pair> {
        let mut sets = DisjointSets::new(evidence.len());
        let mut pairs = Vec::new();
        let present = || evidence.iter().enumerate().filter(|(_, path)| **path != PathEvidence::Absent);
        for (i, one) in present() {
            for (j, other) in present().take_while(|(j, _)| *j < i) {
                if sets.find(i) == sets.find(j) {
                    continue;
                }
                let together = if self.start_together(i, j) {
                    self.stay_together((i, *one), (j, *other), || correlation(i, j))
                } else if [*one, *other].contains(&PathEvidence::New) {
                    self.were_together(i, j)
                } else {
                    match correlation(i, j) {
                        Correlation::ClearlyCorrelated => true,
                        Correlation::Uncorrelated => false,
                        // The interval changes nothing: neither similar statistics nor losses prove that
                        // there is one queue.
                        _ => self.were_together(i, j),
                    }
                };
                if together {
                    sets.union(i, j);
                    pairs.push((i, j));
                }
            }
        }
        pairs
    }

    /// Whether a pair over different uplinks was lately together by itself, not only through others.
    fn were_together(&self, i: usize, j: usize) -> bool {
        self.history.iter().any(|pairs| pairs.contains(&(i, j)))
    }

    /// Whether two paths that may share an uplink are together by the evidence of one interval.
    fn stay_together(
        &self,
        (i, one): (usize, PathEvidence),
        (j, other): (usize, PathEvidence),
        correlation: impl FnOnce() -> Correlation,
    ) -> bool {
        if [one, other].iter().any(|path| matches!(path, PathEvidence::Unknown | PathEvidence::New)) {
            return true;
        }
        match (correlation(), one, other) {
            (Correlation::Correlated | Correlation::ClearlyCorrelated, ..) => true,
            (Correlation::Uncorrelated, ..) => false,
            // If both paths pass no bottleneck, the interval changes nothing.
            (Correlation::NoQueue, ..) | (_, PathEvidence::NoBottleneck, PathEvidence::NoBottleneck) => {
                self.groups[i] == self.groups[j]
            }
            (Correlation::Unknown, ..) => true,
            (Correlation::Inconclusive, ..) => one == other,
        }
    }

    /// Computes the groups. Two paths are apart only if no interval of the history has them together,
    /// directly or through others: a split needs all intervals, a join one.
    fn regroup(&mut self) {
        let mut sets = DisjointSets::new(self.groups.len());
        self.history.iter().flatten().for_each(|(a, b)| sets.union(*a, *b));
        let (mut names, mut next) = (alloc::vec![None; self.groups.len()], 0);
        for (i, group) in self.groups.iter_mut().enumerate() {
            *group = *names[sets.find(i)].get_or_insert_with(|| {
                next += 1;
                next - 1
            });
        }
    }
}

/// Disjoint sets; the root of each is its smallest member.
struct DisjointSets(Vec<usize>);

impl DisjointSets {
    fn new(len: usize) -> Self {
        Self((0..len).collect())
    }

    fn find(&mut self, mut i: usize) -> usize {
        while self.0[i] != i {
            self.0[i] = self.0[self.0[i]];
            i = self.0[i];
        }
        i
    }

    fn union(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b)] = a.min(b);
    }
}
