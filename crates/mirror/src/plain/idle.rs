//! The groups that nobody has been asked for: a set of disjoint intervals. Unlike the one in `mmtp`, groups
//! leave it from the middle (they came although nobody was asked), and come back that are in it already.

use std::collections::BTreeMap;
use std::ops::Range;

use mmtp::id::SEGMENT_GROUPS;

/// Half-open intervals of group numbers, kept apart and merged where they touch.
#[derive(Clone, Debug, Default)]
pub(super) struct Idle {
    ends: BTreeMap<u64, u64>,
    count: u64,
}

impl Idle {
    /// How many there are.
    pub(super) const fn len(&self) -> u64 {
        self.count
    }

    /// Adds `range`; what is there already stays.
    pub(super) fn put(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        if start >= end {
            return;
        }
        self.count += end - start;
        // Everything that touches it becomes part of it.
        while let Some((&first, &last)) =
            self.ends.range(..=end).next_back().filter(|(_, last)| **last >= start)
        {
            self.ends.remove(&first);
            self.count -= last.min(end).saturating_sub(first.max(start));
            (start, end) = (start.min(first), end.max(last));
        }
        self.ends.insert(start, end);
    }

    /// Removes one group, if it is there.
    pub(super) fn remove(&mut self, group: u64) -> bool {
        let Some((&first, &end)) = self.ends.range(..=group).next_back().filter(|(_, end)| **end > group)
        else {
            return false;
        };
        self.ends.remove(&first);
        if first < group {
            self.ends.insert(first, group);
        }
        if group + 1 < end {
            self.ends.insert(group + 1, end);
        }
        self.count -= 1;
        true
    }

    /// The first interval within `bounds`.
    pub(super) fn first_in(&self, bounds: Range<u64>) -> Option<Range<u64>> {
        let before = self.ends.range(..bounds.start).next_back();
        let after = self.ends.range(bounds.clone()).next();
        before
            .into_iter()
            .chain(after)
            .map(|(&first, &end)| first.max(bounds.start)..end.min(bounds.end))
            .find(|range| !range.is_empty())
    }

    /// Takes up to `groups` groups, at least 1, from the first interval within `bounds`. Where the interval
    /// goes on, a range that holds the end of a segment ends there.
    pub(super) fn take(&mut self, bounds: Range<u64>, groups: u64) -> Option<Range<u64>> {
        let found = self.first_in(bounds)?;
        let mut end = found.end.min(found.start.saturating_add(groups.max(1)));
        let aligned = end / SEGMENT_GROUPS * SEGMENT_GROUPS;
        if end < found.end && aligned > found.start {
            end = aligned;
        }
        let (&first, &last) = self.ends.range(..=found.start).next_back()?;
        self.ends.remove(&first);
        if first < found.start {
            self.ends.insert(first, found.start);
        }
        if end < last {
            self.ends.insert(end, last);
        }
        self.count -= end - found.start;
        Some(found.start..end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_set(ops in prop::collection::vec((0..4_u8, 0_u64..300, 1_u64..90), 1..80)) {
            let (mut idle, mut model) = (Idle::default(), BTreeSet::new());
            for (op, first, len) in ops {
                match op {
                    0 => {
                        prop_assert_eq!(idle.remove(first), model.remove(&first));
                    }
                    1 => {
                        let taken = idle.take(first..first + 2 * len, len);
                        let lowest = model.range(first..first + 2 * len).next().copied();
                        prop_assert_eq!(taken.as_ref().map(|t| t.start), lowest, "the lowest");
                        let taken = taken.unwrap_or(0..0);
                        prop_assert!(taken.end - taken.start <= len);
                        prop_assert!(taken.is_empty() || taken.end <= first + 2 * len);
                        for group in taken {
                            prop_assert!(model.remove(&group));
                        }
                    }
                    _ => {
                        idle.put(first..first + len);
                        model.extend(first..first + len);
                    }
                }
                prop_assert_eq!(idle.len(), model.len() as u64);
                let flat: Vec<u64> = idle.ends.iter().flat_map(|(a, b)| *a..*b).collect();
                prop_assert_eq!(&flat, &model.iter().copied().collect::<Vec<_>>());
                let apart = idle.ends.iter().zip(idle.ends.iter().skip(1)).all(|(a, b)| a.1 < b.0);
                prop_assert!(apart, "merged where they touch");
            }
        }
    }

    #[test]
    fn ranges_end_where_segments_do() {
        let mut idle = Idle::default();
        idle.put(10..1_000);
        assert_eq!(idle.take(0..u64::MAX, 100), Some(10..64));
        assert_eq!(idle.take(0..u64::MAX, 130), Some(64..192));
        assert_eq!(idle.take(0..u64::MAX, 4), Some(192..196), "too short for an end");
        assert_eq!(idle.take(990..u64::MAX, 64), Some(990..1_000));
    }
}
