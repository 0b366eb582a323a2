//! Selects the parts of a content that are wanted, if not all are.

use std::ops::Range;

use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::BLOCK_BYTES;

/// Selects the wanted parts of a content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Selection {
    /// All blocks.
    #[default]
    Whole,
    /// Ranges of bytes, and the blocks that have them. Both are in order; blocks do not touch.
    Ranges { bytes: Vec<Range<u64>>, blocks: Vec<Range<u64>> },
}

/// Two ranges of bytes with no longer gap than this between them are fetched as one, because the head of an
/// answer has more bytes.
const GAP_BYTES: u64 = 256;

impl Selection {
    /// Selects these ranges of bytes.
    pub(super) fn of_bytes(ranges: &[Range<u64>]) -> Self {
        let block = BLOCK_BYTES as u64;
        let bytes: Vec<Range<u64>> = ranges.iter().filter(|range| range.start < range.end).cloned().collect();
        let blocks = bytes.iter().map(|range| range.start / block..range.end.div_ceil(block)).collect();
        Self::Ranges { blocks: merged(blocks, 0), bytes: merged(bytes, GAP_BYTES) }
    }

    /// Returns the wanted ranges of bytes; none if the whole content is wanted.
    pub(super) fn ranges(&self) -> &[Range<u64>] {
        match self {
            Self::Whole => &[],
            Self::Ranges { bytes, .. } => bytes,
        }
    }

    /// Returns whether all blocks are wanted.
    pub(super) const fn is_whole(&self) -> bool {
        matches!(self, Self::Whole)
    }

    /// Returns whether a block is wanted.
    pub(super) fn has(&self, block: u64) -> bool {
        match self {
            Self::Whole => true,
            Self::Ranges { blocks: ranges, .. } => {
                let after = ranges.partition_point(|range| range.end <= block);
                ranges.get(after).is_some_and(|range| range.contains(&block))
            }
        }
    }

    /// Returns the first wanted block from `block` on in a content of `blocks` blocks; `blocks` if no such
    /// block follows.
    pub(super) fn next(&self, block: u64, blocks: u64) -> u64 {
        let next = match self {
            Self::Whole => block,
            Self::Ranges { blocks: ranges, .. } => {
                let after = ranges.partition_point(|range| range.end <= block);
                ranges.get(after).map_or(blocks, |range| range.start.max(block))
            }
        };
        next.min(blocks)
    }

    /// Returns the number of bytes in the wanted blocks below block `end`.
    pub(super) fn bytes_below(&self, end: u64, id: &ContentId) -> u64 {
        let bytes = |blocks: Range<u64>| {
            let at = |block: u64| block.saturating_mul(BLOCK_BYTES as u64).min(id.length);
            at(blocks.end.min(end)).saturating_sub(at(blocks.start))
        };
        match self {
            Self::Whole => bytes(0..end),
            Self::Ranges { blocks: ranges, .. } => ranges.iter().cloned().map(bytes).sum(),
        }
    }
}

/// Returns these ranges in order, those joined that overlap or have at most `gap` between them.
fn merged(mut ranges: Vec<Range<u64>>, gap: u64) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(gap) => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_bytes_are_ranges_of_blocks() {
        let block = BLOCK_BYTES as u64;
        let all = [5 * block..5 * block + 1, 0..1, 10..block + 1, 7..7, 3 * block - 1..3 * block];
        let selection = Selection::of_bytes(&all);
        let Selection::Ranges { blocks, .. } = &selection else { panic!("{selection:?}") };
        assert_eq!(*blocks, [0..3, 5..6]);
        let bytes = [0..block + 1, 3 * block - 1..3 * block, 5 * block..5 * block + 1];
        assert_eq!(selection.ranges(), bytes, "a short gap is fetched too");
        let has: Vec<u64> = (0..8).filter(|block| selection.has(*block)).collect();
        assert_eq!(has, [0, 1, 2, 5]);
        let next: Vec<u64> = (0..8).map(|block| selection.next(block, 7)).collect();
        assert_eq!(next, [0, 1, 2, 5, 5, 5, 7, 7]);
        let id = ContentId { root: [0; 32], length: 5 * block + 9 };
        assert_eq!(selection.bytes_below(6, &id), 3 * block + 9);
        assert_eq!(selection.bytes_below(2, &id), 2 * block);
        assert_eq!(Selection::Whole.bytes_below(6, &id), id.length);
        assert_eq!(Selection::of_bytes(&[]).next(0, 7), 7, "nothing is wanted");
    }
}
