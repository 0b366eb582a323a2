//! Which paths are coupled: ours, on top of the RFC's grouping.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::alike::Likeness;

/// What one interval says about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// It passes a bottleneck: with those of the same number.
    Group(u32),
    /// Enough is known of it, and it passes none.
    Clear,
    /// Too little is known.
    Unknown,
    /// It carries nothing, and has carried nothing for long.
    Absent,
}

/// The classes of one interval: paths with the same number were together, one without was on its own.
pub(super) type Classes = Vec<Option<u32>>;

/// Who is together by the views of one interval and the likeness of two paths; `groups` are those of the
/// interval before.
pub(super) fn classes(
    views: &[View],
    groups: &[u32],
    mut likeness: impl FnMut(usize, usize) -> Likeness,
) -> Classes {
    let there = |view: &View| *view != View::Absent;
    if views.contains(&View::Unknown) {
        return views.iter().map(|view| there(view).then_some(0)).collect();
    }
    let mut sets = Sets::new(views.len());
    let present = || views.iter().enumerate().filter(|(_, view)| there(view));
    for (i, one) in present() {
        for (j, other) in present().take_while(|(j, _)| *j < i) {
            if sets.root(i) == sets.root(j) {
                continue;
            }
            let together = match (likeness(i, j), one, other) {
                (Likeness::Alike, ..) => true,
                (Likeness::Unlike, ..) => false,
                // Of paths that pass no bottleneck there is no news, together or apart.
                (_, View::Clear, View::Clear) => groups[i] == groups[j],
                (Likeness::Unknown, ..) => true,
                (Likeness::Unsure, ..) => one == other,
            };
            if together {
                sets.join(i, j);
            }
        }
    }
    (0..views.len()).map(|i| there(&views[i]).then(|| sets.root(i) as u32)).collect()
}

/// The classes of the last intervals.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    /// As many as a split takes.
    history: VecDeque<Classes>,
    hold: usize,
}

impl Policy {
    pub(super) fn new(hold: u32) -> Self {
        Self { history: VecDeque::new(), hold: (hold as usize).max(1) }
    }

    /// Nothing is known any more: everything is together.
    pub(super) fn clear(&mut self) {
        self.history.clear();
    }

    /// Takes the classes of one more interval, of as many paths as before unless [cleared](Self::clear);
    /// writes the group of each path, numbered in the order of the first path of each.
    pub(super) fn step(&mut self, classes: Classes, groups: &mut [u32]) {
        if self.history.len() >= self.hold {
            self.history.pop_front();
        }
        self.history.push_back(classes);
        if self.history.len() < self.hold {
            groups.fill(0);
            return;
        }
        // Two paths are apart only if no interval of the history has them together, directly or through
        // others: a split needs all of them, a join one.
        let mut sets = Sets::new(groups.len());
        let mut first: Vec<Option<usize>> = alloc::vec![None; groups.len()];
        for classes in &self.history {
            first.fill(None);
            for (i, class) in classes.iter().enumerate() {
                if let Some(class) = class {
                    sets.join(*first[*class as usize].get_or_insert(i), i);
                }
            }
        }
        let (mut names, mut next) = (alloc::vec![None; groups.len()], 0);
        for (i, group) in groups.iter_mut().enumerate() {
            *group = *names[sets.root(i)].get_or_insert_with(|| {
                next += 1;
                next - 1
            });
        }
    }
}

/// Disjoint sets, the smallest member being the root.
struct Sets(Vec<usize>);

impl Sets {
    fn new(len: usize) -> Self {
        Self((0..len).collect())
    }

    fn root(&mut self, mut i: usize) -> usize {
        while self.0[i] != i {
            self.0[i] = self.0[self.0[i]];
            i = self.0[i];
        }
        i
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.0[a.max(b)] = a.min(b);
    }
}
