//! Numbers by a seed.

use anabranch_algo::Span;

/// SplitMix64.
pub(in crate::get) struct Rng(pub(in crate::get) u64);

impl Rng {
    /// A number below `n`.
    pub(in crate::get) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    /// True once in `n` times.
    pub(in crate::get) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A time from `from` up to `to`, milliseconds.
    pub(in crate::get) fn millis(&mut self, from: u64, to: u64) -> Span {
        Span::from_millis(from + self.below(to - from))
    }

    /// So many bytes.
    #[cfg(test)]
    pub(in crate::get) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let words = (0..length.div_ceil(8)).flat_map(|_| self.below(u64::MAX).to_le_bytes());
        words.take(length).collect()
    }
}
