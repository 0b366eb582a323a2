//! Puts bytes in order that arrive in any order, for subflows and for the data of a connection.

use std::collections::BTreeMap;

use crate::payload::Payload;

/// The most pieces out of order that are kept; further ones are dropped and sent again.
const PIECES_MAX: usize = 16_384;

/// Pieces of numbered bytes. Sequence numbers are 64 bits wide; pieces do not overlap.
#[derive(Clone, Debug)]
pub(crate) struct Reassembly {
    next: u64,
    pieces: BTreeMap<u64, Payload>,
}

/// The effect of inserting a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inserted {
    /// Whether any byte was new.
    pub(crate) is_new: bool,
    /// The first range of the piece that was there before.
    pub(crate) duplicate: Option<(u64, u64)>,
}

impl Reassembly {
    /// Creates an empty buffer that expects number `next` first.
    pub(crate) const fn new(next: u64) -> Self {
        Self { next, pieces: BTreeMap::new() }
    }

    /// Returns the next number that is expected.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }
    /// Returns whether no piece is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Skips the next number, which belongs to a FIN and not to a byte.
    pub(crate) const fn skip_one(&mut self) {
        self.next += 1;
    }

    /// Keeps the bytes of a piece that are new and below `edge`.
    pub(crate) fn insert(&mut self, seq: u64, mut payload: Payload, edge: u64) -> Inserted {
        let mut inserted = Inserted { is_new: false, duplicate: None };
        let mut from = seq;
        if from < self.next {
            payload.skip((self.next - from) as usize);
            inserted.duplicate = Some((from, self.next.min(seq + payload.len() as u64).max(from)));
            from = self.next;
        }
        payload.truncate(edge.saturating_sub(from) as usize);
        if let Some((at, before)) = self.pieces.range(..from).next_back() {
            let before_end = at + before.len() as u64;
            if before_end > from {
                let end = before_end.min(from + payload.len() as u64);
                inserted.duplicate.get_or_insert((from, end));
                payload.skip((end - from) as usize);
                from = end;
            }
        }
        while !payload.is_empty() && self.pieces.len() < PIECES_MAX {
            let end = from + payload.len() as u64;
            let after = self.pieces.range(from..end).next().map(|(at, piece)| (*at, piece.len() as u64));
            let (at, len) = after.unwrap_or((end, 0));
            let front = payload.split_to((at - from) as usize);
            if !front.is_empty() {
                self.pieces.insert(from, front);
                inserted.is_new = true;
            }
            let covered = len.min(payload.len() as u64);
            if covered > 0 {
                inserted.duplicate.get_or_insert((at, at + covered));
            }
            payload.skip(covered as usize);
            from = at + covered;
        }
        inserted
    }

    /// Returns the next piece in order with the number of its first byte.
    pub(crate) fn pop(&mut self) -> Option<(u64, Payload)> {
        let piece = self.pieces.remove(&self.next)?;
        let at = self.next;
        self.next += piece.len() as u64;
        Some((at, piece))
    }

    /// Returns the contiguous range of kept bytes around `seq`, or `None` if the byte at `seq` is not kept.
    pub(crate) fn range_of(&self, seq: u64) -> Option<(u64, u64)> {
        let (&at, piece) = self.pieces.range(..=seq).next_back()?;
        let (mut left, mut right) = (at, at + piece.len() as u64);
        if seq >= right {
            return None;
        }
        while let Some((&before, piece)) = self.pieces.range(..left).next_back() {
            if before + piece.len() as u64 != left {
                break;
            }
            left = before;
        }
        while let Some(piece) = self.pieces.get(&right) {
            right += piece.len() as u64;
        }
        Some((left, right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_algo::SplitMix64;

    #[test]
    fn any_order_gives_the_same_bytes() {
        for seed in 0..300 {
            let mut random = SplitMix64(seed);
            let all: Vec<u8> = (0..200).collect();
            let (mut reassembly, mut out) = (Reassembly::new(1_000), Vec::new());
            while out.len() < all.len() {
                let from = random.index(all.len());
                let to = (from + 1 + random.index(30)).min(all.len());
                let edge = 1_000 + out.len() as u64 + 90;
                reassembly.insert(1_000 + from as u64, Payload::copy_of(&all[from..to]), edge);
                while let Some((at, piece)) = reassembly.pop() {
                    assert_eq!(at, 1_000 + out.len() as u64);
                    out.extend_from_slice(piece.as_bytes());
                }
            }
            assert!(out == all && reassembly.is_empty(), "seed {seed}");
        }
    }

    #[test]
    fn says_what_was_there_before() {
        let mut reassembly = Reassembly::new(0);
        let bytes = |n| Payload::copy_of(&vec![7; n]);
        assert_eq!(reassembly.insert(10, bytes(10), 100), Inserted { is_new: true, duplicate: None });
        let again = reassembly.insert(10, bytes(10), 100);
        assert_eq!(again, Inserted { is_new: false, duplicate: Some((10, 20)) });
        let around = reassembly.insert(5, bytes(20), 100);
        assert_eq!(around, Inserted { is_new: true, duplicate: Some((10, 20)) });
        assert_eq!((reassembly.range_of(12), reassembly.range_of(30)), (Some((5, 25)), None));
        assert!(!reassembly.insert(100, bytes(1), 100).is_new);
    }
}
