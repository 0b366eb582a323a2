//! A set of block numbers, kept as disjoint ranges.
//!
//! It holds the blocks of a content that no source has been asked for. Its memory grows with the number of
//! ranges, not with the length of the content.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::id::SEGMENT_BLOCKS;

/// Half-open ranges of block numbers, merged where they touch.
#[derive(Clone, Debug, Default)]
pub struct RangeSet {
    /// The end of each range, keyed by its start.
    ends: BTreeMap<u64, u64>,
    count: u64,
}

impl RangeSet {
    /// Returns the number of blocks in the set.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.count
    }

    /// Returns how many blocks of the set are below `end`.
    #[must_use]
    pub fn len_below(&self, end: u64) -> u64 {
        if end == u64::MAX {
            return self.count;
        }
        self.ends.range(..end).map(|(first, last)| last.min(&end) - first).sum()
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether `block` is in the set.
    #[must_use]
    pub fn contains(&self, block: u64) -> bool {
        self.range_around(block).is_some()
    }

    /// Adds `range`; blocks that are already in the set stay. Returns how many blocks are new.
    pub fn insert(&mut self, range: Range<u64>) -> u64 {
        let Range { mut start, mut end } = range;
        if start >= end {
            return 0;
        }
        let mut added = end - start;
        // Every range that touches the new one becomes part of it.
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

    /// Adds `range`. The caller must ensure that none of its blocks is in the set.
    pub fn insert_new(&mut self, range: Range<u64>) {
        let blocks = range.end.saturating_sub(range.start);
        let added = self.insert(range);
        debug_assert_eq!(added, blocks, "a block is in the set twice");
    }

    /// Removes one block and returns whether it was in the set.
    pub fn remove(&mut self, block: u64) -> bool {
        let found = self.range_around(block);
        if let Some(around) = found.clone() {
            self.punch(around, block..block + 1);
        }
        found.is_some()
    }

    /// Returns the first consecutive blocks of the set within `bounds`.
    #[must_use]
    pub fn first_in(&self, bounds: Range<u64>) -> Option<Range<u64>> {
        self.first_range_in(&bounds).map(|(_, within)| within)
    }

    /// Takes up to `blocks` (at least 1) of the first consecutive blocks within `bounds` out of the set. If
    /// more blocks follow them and the range spans the end of a segment, the range stops at the last such
    /// end.
    pub fn take(&mut self, bounds: Range<u64>, blocks: u64) -> Option<Range<u64>> {
        let (around, found) = self.first_range_in(&bounds)?;
        let mut end = found.end.min(found.start.saturating_add(blocks.max(1)));
        let aligned = end / SEGMENT_BLOCKS * SEGMENT_BLOCKS;
        if end < found.end && aligned > found.start {
            end = aligned;
        }
        let taken = found.start..end;
        self.punch(around, taken.clone());
        Some(taken)
    }

    /// Takes the first consecutive blocks out of the set, at most to the end of their segment.
    pub fn take_segment(&mut self) -> Option<Range<u64>> {
        self.take_segment_below(u64::MAX)
    }

    /// Takes the first consecutive blocks out of the set, at most to the end of their segment and only blocks
    /// below `bound`.
    pub fn take_segment_below(&mut self, bound: u64) -> Option<Range<u64>> {
        let (&first, &end) = self.ends.first_key_value().filter(|(first, _)| **first < bound)?;
        let segment_end = (first / SEGMENT_BLOCKS + 1).saturating_mul(SEGMENT_BLOCKS);
        let taken = first..end.min(segment_end).min(bound);
        self.punch(first..end, taken.clone());
        Some(taken)
    }

    /// Takes up to `blocks` blocks out of the set, from the end of its last consecutive blocks.
    pub fn take_last(&mut self, blocks: u64) -> Option<Range<u64>> {
        let (&first, &end) = self.ends.last_key_value()?;
        let taken = first.max(end.saturating_sub(blocks.max(1)))..end;
        self.punch(first..end, taken.clone());
        Some(taken)
    }

    /// Returns the last consecutive blocks of the set.
    #[must_use]
    pub fn last(&self) -> Option<Range<u64>> {
        self.ends.last_key_value().map(|(&first, &end)| first..end)
    }

    /// Returns the ranges in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.ends.iter().map(|(&first, &end)| first..end)
    }

    /// Returns the range that contains `block`.
    fn range_around(&self, block: u64) -> Option<Range<u64>> {
        let (&first, &end) = self.ends.range(..=block).next_back()?;
        (block < end).then_some(first..end)
    }

    /// Returns the first range that overlaps `bounds`, and the part of it within `bounds`.
    fn first_range_in(&self, bounds: &Range<u64>) -> Option<(Range<u64>, Range<u64>)> {
        if bounds.is_empty() {
            return None;
        }
        let after = || self.ends.range(bounds.clone()).next().map(|(&first, &end)| first..end);
        let around = self.range_around(bounds.start).or_else(after)?;
        let within = around.start.max(bounds.start)..around.end.min(bounds.end);
        Some((around, within))
    }

    /// Removes `hole` from the range `around`, which contains it.
    fn punch(&mut self, around: Range<u64>, hole: Range<u64>) {
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
        fn agrees_with_a_set(ops in prop::collection::vec((0..7_u8, 0_u64..300, 1_u64..90), 1..80)) {
            let (mut set, mut model) = (RangeSet::default(), BTreeSet::new());
            for (op, first, len) in ops {
                prop_assert_eq!(set.contains(first), model.contains(&first));
                let range = first..first + len;
                match op {
                    0 => {
                        prop_assert_eq!(set.remove(first), model.remove(&first));
                    }
                    1 => {
                        let bounds = first..first + 2 * len;
                        let seen = set.first_in(bounds.clone());
                        let taken = set.take(bounds.clone(), len);
                        let lowest = model.range(bounds.clone()).next().copied();
                        prop_assert_eq!(taken.as_ref().map(|t| t.start), lowest, "the lowest");
                        prop_assert_eq!(seen.as_ref().map(|s| s.start), lowest);
                        let (seen, taken) = (seen.unwrap_or(0..0), taken.unwrap_or(0..0));
                        prop_assert!(taken.end <= seen.end && taken.end - taken.start <= len);
                        prop_assert!(taken.is_empty() || seen.end <= bounds.end);
                        prop_assert!(seen.clone().all(|block| model.contains(&block)));
                        let goes_on = model.contains(&seen.end) && seen.end < bounds.end;
                        prop_assert!(seen.is_empty() || !goes_on, "all in a row");
                        for block in taken {
                            prop_assert!(model.remove(&block));
                        }
                    }
                    2 => {
                        // Every other time, the blocks must lie below a bound.
                        let bound = if len % 2 == 0 { first + len } else { u64::MAX };
                        let taken = set.take_segment_below(bound);
                        let lowest = model.first().copied().filter(|lowest| *lowest < bound);
                        prop_assert!(taken.as_ref().is_none_or(|taken| taken.end <= bound));
                        prop_assert_eq!(taken.as_ref().map(|t| t.start), lowest, "the lowest");
                        if let Some(taken) = taken {
                            prop_assert_eq!(taken.start / 64, (taken.end - 1) / 64, "never across segments");
                            for block in taken {
                                prop_assert!(model.remove(&block));
                            }
                        }
                    }
                    6 => {
                        let taken = set.take_last(len);
                        let last = model.last().map(|last| last + 1);
                        prop_assert_eq!(taken.as_ref().map(|t| t.end), last, "the highest");
                        for block in taken.into_iter().flatten() {
                            prop_assert!(model.remove(&block));
                        }
                    }
                    3 if range.clone().all(|block| !model.contains(&block)) => {
                        set.insert_new(range.clone());
                        model.extend(range);
                    }
                    _ => {
                        let added = range.clone().filter(|block| !model.contains(block)).count();
                        prop_assert_eq!(set.insert(range.clone()), added as u64);
                        model.extend(range);
                    }
                }
                prop_assert_eq!(set.len(), model.len() as u64);
                prop_assert_eq!(set.len_below(first), model.range(..first).count() as u64);
                prop_assert_eq!(set.is_empty(), model.is_empty());
                let flat: Vec<u64> = set.ends.iter().flat_map(|(a, b)| *a..*b).collect();
                prop_assert_eq!(&flat, &model.iter().copied().collect::<Vec<_>>());
                let apart = set.ends.iter().zip(set.ends.iter().skip(1)).all(|(a, b)| a.1 < b.0);
                prop_assert!(apart, "merged where they touch");
            }
            let mut left = BTreeSet::new();
            while let Some(taken) = set.take_segment() {
                left.extend(taken);
            }
            prop_assert_eq!(left, model);
        }
    }

    #[test]
    fn ranges_end_where_segments_do() {
        let mut set = RangeSet::default();
        set.insert(10..1_000);
        assert_eq!(set.take(0..u64::MAX, 100), Some(10..64));
        assert_eq!(set.take(0..u64::MAX, 130), Some(64..192));
        assert_eq!(set.take(0..u64::MAX, 4), Some(192..196), "too short for an end");
        assert_eq!(set.take(990..u64::MAX, 64), Some(990..1_000));
        assert_eq!(set.take(200..300, 100), Some(200..300), "a bound is an end too");
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a block is in the set twice")]
    fn what_is_put_as_new_is_new() {
        let mut set = RangeSet::default();
        set.insert_new(5..9);
        set.insert_new(1..6);
    }
}
