//! The groups that nobody has been asked for yet: a set of disjoint intervals.

use std::collections::BTreeMap;

use crate::id::SEGMENT_GROUPS;

/// Half-open intervals of group numbers, kept apart and merged where they touch.
#[derive(Clone, Debug, Default)]
pub(super) struct Idle {
    ends: BTreeMap<u64, u64>,
}

impl Idle {
    /// Adds `first..end`; must not overlap what is there.
    pub(super) fn put(&mut self, first: u64, end: u64) {
        if first >= end {
            return;
        }
        let mut start = first;
        if let Some((&before, &before_end)) = self.ends.range(..first).next_back() {
            debug_assert!(before_end <= first, "a group is idle twice");
            if before_end == first {
                start = before;
            }
        }
        let end = match self.ends.remove(&end) {
            Some(after) => after,
            None => end,
        };
        self.ends.insert(start, end);
    }

    /// Takes the first idle groups, at most to the end of their segment: `next_idle` of the dossier, a
    /// segment at a time.
    pub(super) fn take(&mut self) -> Option<(u64, u64)> {
        let first = *self.ends.first_key_value()?.0;
        Some((first, self.extend(first)))
    }

    /// Takes the idle groups that begin at `first` too, at most to the end of their segment; returns where
    /// what was taken ends.
    pub(super) fn extend(&mut self, first: u64) -> u64 {
        let Some(end) = self.ends.remove(&first) else { return first };
        let cut = (first / SEGMENT_GROUPS + 1) * SEGMENT_GROUPS;
        if end > cut {
            self.ends.insert(cut, end);
        }
        end.min(cut)
    }

    /// Takes one group, if it is idle.
    pub(super) fn remove(&mut self, group: u64) {
        let Some((&first, &end)) = self.ends.range(..=group).next_back().filter(|(_, end)| group < **end)
        else {
            return;
        };
        self.ends.remove(&first);
        self.put(first, group);
        self.put(group + 1, end);
    }

    /// Whether `group` is idle.
    pub(super) fn contains(&self, group: u64) -> bool {
        self.ends.range(..=group).next_back().is_some_and(|(_, &end)| group < end)
    }

    /// How many groups are idle.
    pub(super) fn len(&self) -> u64 {
        self.ends.iter().map(|(first, end)| end - first).sum()
    }

    /// Whether no group is idle.
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_set(ops in prop::collection::vec((0u64..300, 1u64..90), 1..80)) {
            let (mut idle, mut model) = (Idle::default(), BTreeSet::new());
            for (first, len) in ops {
                let end = first + len;
                prop_assert_eq!(idle.contains(first), model.contains(&first));
                prop_assert_eq!(idle.len(), model.len() as u64);
                if len == 1 {
                    idle.remove(first);
                    model.remove(&first);
                } else if (first..end).any(|g| model.contains(&g)) {
                    let (a, b) = idle.take().expect("the model is not empty");
                    prop_assert_eq!(Some(&a), model.first(), "always the lowest");
                    prop_assert_eq!(a / 64, (b - 1) / 64, "never across segments");
                    for g in a..b {
                        prop_assert!(model.remove(&g));
                    }
                } else {
                    idle.put(first, end);
                    model.extend(first..end);
                }
            }
            let mut left = BTreeSet::new();
            while let Some((a, b)) = idle.take() {
                left.extend(a..b);
            }
            prop_assert_eq!(left, model);
        }
    }
}
