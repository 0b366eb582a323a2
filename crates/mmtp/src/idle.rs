//! The groups that nobody has been asked for: a set of disjoint intervals.
//!
//! Whoever hands out groups takes them from here and puts back what nobody will bring. The memory it needs
//! is that of its holes, not of the content.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::id::SEGMENT_GROUPS;

/// Half-open intervals of group numbers, kept apart and merged where they touch.
#[derive(Clone, Debug, Default)]
pub struct Idle {
    /// Where each interval ends, by where it begins.
    ends: BTreeMap<u64, u64>,
    count: u64,
}

impl Idle {
    /// How many groups are idle.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.count
    }

    /// Whether no group is idle.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether `group` is idle.
    #[must_use]
    pub fn contains(&self, group: u64) -> bool {
        self.around(group).is_some()
    }

    /// Adds `range`; what is there already stays. Returns how many groups were not.
    pub fn put(&mut self, range: Range<u64>) -> u64 {
        let Range { mut start, mut end } = range;
        if start >= end {
            return 0;
        }
        let mut added = end - start;
        // Everything that touches it becomes part of it.
        while let Some((&first, &last)) =
            self.ends.range(..=end).next_back().filter(|(_, last)| **last >= start)
        {
            self.ends.remove(&first);
            added -= last.min(end).saturating_sub(first.max(start));
            (start, end) = (start.min(first), end.max(last));
        }
        self.ends.insert(start, end);
        self.count += added;
        added
    }

    /// Adds `range`, of which nothing is there: a group that was idle already is a mistake of the caller's.
    pub fn put_new(&mut self, range: Range<u64>) {
        let groups = range.end.saturating_sub(range.start);
        let added = self.put(range);
        debug_assert_eq!(added, groups, "a group is idle twice");
    }

    /// Removes one group; whether it was there.
    pub fn remove(&mut self, group: u64) -> bool {
        let found = self.around(group);
        if let Some(around) = found.clone() {
            self.cut(around, group..group + 1);
        }
        found.is_some()
    }

    /// The first idle groups in a row within `bounds`.
    #[must_use]
    pub fn first_in(&self, bounds: Range<u64>) -> Option<Range<u64>> {
        self.find(&bounds).map(|(_, within)| within)
    }

    /// Takes up to `groups` groups, at least 1, from the first in a row within `bounds`. Where those go on, a
    /// range that holds the end of a segment ends there.
    pub fn take(&mut self, bounds: Range<u64>, groups: u64) -> Option<Range<u64>> {
        let (around, found) = self.find(&bounds)?;
        let mut end = found.end.min(found.start.saturating_add(groups.max(1)));
        let aligned = end / SEGMENT_GROUPS * SEGMENT_GROUPS;
        if end < found.end && aligned > found.start {
            end = aligned;
        }
        let taken = found.start..end;
        self.cut(around, taken.clone());
        Some(taken)
    }

    /// Takes the first idle groups in a row, at most to the end of their segment.
    pub fn take_segment(&mut self) -> Option<Range<u64>> {
        let (&first, &end) = self.ends.first_key_value()?;
        let taken = first..end.min((first / SEGMENT_GROUPS + 1).saturating_mul(SEGMENT_GROUPS));
        self.cut(first..end, taken.clone());
        Some(taken)
    }

    /// The interval that `group` is in.
    fn around(&self, group: u64) -> Option<Range<u64>> {
        let (&first, &end) = self.ends.range(..=group).next_back()?;
        (group < end).then_some(first..end)
    }

    /// The first interval that has something within `bounds`, and what that is.
    fn find(&self, bounds: &Range<u64>) -> Option<(Range<u64>, Range<u64>)> {
        if bounds.is_empty() {
            return None;
        }
        let after = || self.ends.range(bounds.clone()).next().map(|(&first, &end)| first..end);
        let around = self.around(bounds.start).or_else(after)?;
        let within = around.start.max(bounds.start)..around.end.min(bounds.end);
        Some((around, within))
    }

    /// Removes `hole` from the interval `around` that it is in.
    fn cut(&mut self, around: Range<u64>, hole: Range<u64>) {
        self.ends.remove(&around.start);
        if around.start < hole.start {
            self.ends.insert(around.start, hole.start);
        }
        if hole.end < around.end {
            self.ends.insert(hole.end, around.end);
        }
        self.count -= hole.end - hole.start;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_set(ops in prop::collection::vec((0..6_u8, 0_u64..300, 1_u64..90), 1..80)) {
            let (mut idle, mut model) = (Idle::default(), BTreeSet::new());
            for (op, first, len) in ops {
                prop_assert_eq!(idle.contains(first), model.contains(&first));
                let range = first..first + len;
                match op {
                    0 => {
                        prop_assert_eq!(idle.remove(first), model.remove(&first));
                    }
                    1 => {
                        let bounds = first..first + 2 * len;
                        let seen = idle.first_in(bounds.clone());
                        let taken = idle.take(bounds.clone(), len);
                        let lowest = model.range(bounds.clone()).next().copied();
                        prop_assert_eq!(taken.as_ref().map(|t| t.start), lowest, "the lowest");
                        prop_assert_eq!(seen.as_ref().map(|s| s.start), lowest);
                        let (seen, taken) = (seen.unwrap_or(0..0), taken.unwrap_or(0..0));
                        prop_assert!(taken.end <= seen.end && taken.end - taken.start <= len);
                        prop_assert!(taken.is_empty() || seen.end <= bounds.end);
                        prop_assert!(seen.clone().all(|group| model.contains(&group)));
                        let goes_on = model.contains(&seen.end) && seen.end < bounds.end;
                        prop_assert!(seen.is_empty() || !goes_on, "all in a row");
                        for group in taken {
                            prop_assert!(model.remove(&group));
                        }
                    }
                    2 => {
                        let taken = idle.take_segment();
                        let lowest = model.first().copied();
                        prop_assert_eq!(taken.as_ref().map(|t| t.start), lowest, "the lowest");
                        if let Some(taken) = taken {
                            prop_assert_eq!(taken.start / 64, (taken.end - 1) / 64, "never across segments");
                            for group in taken {
                                prop_assert!(model.remove(&group));
                            }
                        }
                    }
                    3 if range.clone().all(|group| !model.contains(&group)) => {
                        idle.put_new(range.clone());
                        model.extend(range);
                    }
                    _ => {
                        let added = range.clone().filter(|group| !model.contains(group)).count();
                        prop_assert_eq!(idle.put(range.clone()), added as u64);
                        model.extend(range);
                    }
                }
                prop_assert_eq!(idle.len(), model.len() as u64);
                prop_assert_eq!(idle.is_empty(), model.is_empty());
                let flat: Vec<u64> = idle.ends.iter().flat_map(|(a, b)| *a..*b).collect();
                prop_assert_eq!(&flat, &model.iter().copied().collect::<Vec<_>>());
                let apart = idle.ends.iter().zip(idle.ends.iter().skip(1)).all(|(a, b)| a.1 < b.0);
                prop_assert!(apart, "merged where they touch");
            }
            let mut left = BTreeSet::new();
            while let Some(taken) = idle.take_segment() {
                left.extend(taken);
            }
            prop_assert_eq!(left, model);
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
        assert_eq!(idle.take(200..300, 100), Some(200..300), "a bound is an end too");
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a group is idle twice")]
    fn what_is_put_as_new_is_new() {
        let mut idle = Idle::default();
        idle.put_new(5..9);
        idle.put_new(1..6);
    }
}
