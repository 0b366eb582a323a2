//! Which paths are coupled: ours, on top of the RFC's grouping.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::correlation::Correlation;

/// What one interval says about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathEvidence {
    /// It passes a bottleneck: with those of the same number.
    Group(u32),
    /// Enough is known of it, and it passes none.
    NoBottleneck,
    /// Too little is known.
    Unknown,
    /// It carries nothing, and has carried nothing for long.
    Absent,
}

/// The partition of one interval: paths with the same number were together, one without was on its own.
pub(super) type Partition = Vec<Option<u32>>;

/// Who is together by the evidence of one interval and the correlation of two paths; `groups` are those of
/// the interval before.
pub(super) fn partition(
    evidence: &[PathEvidence],
    groups: &[u32],
    mut correlation: impl FnMut(usize, usize) -> Correlation,
) -> Partition {
    let there = |path: &PathEvidence| *path != PathEvidence::Absent;
    if evidence.contains(&PathEvidence::Unknown) {
        return evidence.iter().map(|path| there(path).then_some(0)).collect();
    }
    let mut sets = DisjointSets::new(evidence.len());
    let present = || evidence.iter().enumerate().filter(|(_, path)| there(path));
    for (i, one) in present() {
        for (j, other) in present().take_while(|(j, _)| *j < i) {
            if sets.find(i) == sets.find(j) {
                continue;
            }
            let together = match (correlation(i, j), one, other) {
                (Correlation::Correlated, ..) => true,
                (Correlation::Uncorrelated, ..) => false,
                // Of paths that pass no bottleneck there is no news, together or apart.
                (Correlation::NoQueue, ..) => groups[i] == groups[j],
                (_, PathEvidence::NoBottleneck, PathEvidence::NoBottleneck) => groups[i] == groups[j],
                (Correlation::Unknown, ..) => true,
                (Correlation::Inconclusive, ..) => one == other,
            };
            if together {
                sets.union(i, j);
            }
        }
    }
    (0..evidence.len()).map(|i| there(&evidence[i]).then(|| sets.find(i) as u32)).collect()
}

/// The partitions of the last intervals.
#[derive(Clone, Debug)]
pub(super) struct Hysteresis {
    /// As many as a split takes.
    history: VecDeque<Partition>,
    hold: usize,
}

impl Hysteresis {
    pub(super) fn new(hold: u32) -> Self {
        Self { history: VecDeque::new(), hold: (hold as usize).max(1) }
    }

    /// Nothing is known any more: everything is together.
    pub(super) fn clear(&mut self) {
        self.history.clear();
    }

    /// Takes the partition of one more interval, of as many paths as before unless [cleared](Self::clear);
    /// writes the group of each path, numbered in the order of the first path of each.
    pub(super) fn step(&mut self, partition: Partition, groups: &mut [u32]) {
        if self.history.len() >= self.hold {
            self.history.pop_front();
        }
        self.history.push_back(partition);
        if self.history.len() < self.hold {
            groups.fill(0);
            return;
        }
        // Two paths are apart only if no interval of the history has them together, directly or through
        // others: a split needs all of them, a join one.
        let mut sets = DisjointSets::new(groups.len());
        let mut first: Vec<Option<usize>> = alloc::vec![None; groups.len()];
        for partition in &self.history {
            first.fill(None);
            for (i, class) in partition.iter().enumerate() {
                if let Some(class) = class {
                    sets.union(*first[*class as usize].get_or_insert(i), i);
                }
            }
        }
        let (mut names, mut next) = (alloc::vec![None; groups.len()], 0);
        for (i, group) in groups.iter_mut().enumerate() {
            *group = *names[sets.find(i)].get_or_insert_with(|| {
                next += 1;
                next - 1
            });
        }
    }
}

/// Disjoint sets, the smallest member being the root.
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
