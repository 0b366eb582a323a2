//! Random numbers by a seed.

use anabranch_algo::{Span, SplitMix64};

/// [`SplitMix64`] with the draws that these tests need.
pub(in crate::get) struct Rng(SplitMix64);

impl Rng {
    pub(in crate::get) const fn new(seed: u64) -> Self {
        Self(SplitMix64(seed))
    }

    /// Returns a number below `n`.
    pub(in crate::get) const fn below(&mut self, n: u64) -> u64 {
        self.0.below(n)
    }

    /// Returns true once in `n` times.
    pub(in crate::get) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns a time of at least `from` and less than `to` milliseconds.
    pub(in crate::get) fn millis(&mut self, from: u64, to: u64) -> Span {
        Span::from_millis(from + self.below(to - from))
    }

    /// Returns `length` random bytes.
    #[cfg(test)]
    pub(in crate::get) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let words = (0..length.div_ceil(8)).flat_map(|_| self.below(u64::MAX).to_le_bytes());
        words.take(length).collect()
    }
}
