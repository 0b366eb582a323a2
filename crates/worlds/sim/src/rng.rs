//! Implements a small random number generator, with a separate stream for each component.
//!
//! The generator is xoshiro256++ 1.0, seeded by SplitMix64 (Blackman, Vigna: "Scrambled linear pseudorandom
//! number generators", ACM TOMS 47(4), 2021; reference code at <https://prng.di.unimi.it>). Not for secrets.

use anabranch_algo::SplitMix64;

/// A deterministic random number generator (xoshiro256++).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng([u64; 4]);

impl Rng {
    /// Makes a generator from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut seeds = SplitMix64(seed);
        Self(std::array::from_fn(|_| seeds.bits()))
    }

    /// Makes the stream `name` of the run `seed`.
    ///
    /// Streams of different names are independent: if one component draws more numbers, or a component is
    /// added, the numbers of the others do not change.
    #[must_use]
    pub fn stream(seed: u64, name: &str) -> Self {
        // FNV-1a gives different names different numbers; SplitMix64 spreads the difference over all bits.
        Self::new(SplitMix64(seed).bits() ^ fnv(FNV_EMPTY, name))
    }

    /// Returns the next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Returns a number in `0..n`, each equally likely; 0 if `n` is 0.
    ///
    /// Source: Lemire, "Fast random integer generation in an interval", ACM TOMACS 29(1), 2019, algorithm 5.
    pub fn below(&mut self, n: u64) -> u64 {
        let mut product = u128::from(self.bits()) * u128::from(n);
        if (product as u64) < n {
            let biased = n.wrapping_neg() % n;
            while (product as u64) < biased {
                product = u128::from(self.bits()) * u128::from(n);
            }
        }
        (product >> 64) as u64
    }

    /// Returns a number in `[0, 1)`, a multiple of 2⁻⁵³.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns true with probability `p`; false if `p` is NaN. Draws no number if the result is certain.
    pub fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && (p >= 1.0 || self.unit() < p)
    }
}

/// Holds the seed and the name of a component, from which its streams are made when they are needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RngSeed {
    seed: u64,
    name: u64,
}

impl RngSeed {
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        Self { seed: SplitMix64(seed).bits(), name: fnv(fnv(FNV_EMPTY, name), "/") }
    }

    /// Makes the stream `name/fault` of the run.
    pub(crate) fn stream(&self, fault: &str) -> Rng {
        Rng::new(self.seed ^ fnv(self.name, fault))
    }
}

const FNV_EMPTY: u64 = 0xcbf2_9ce4_8422_2325;

/// Continues the FNV-1a `hash` with the bytes of `text`.
fn fnv(hash: u64, text: &str) -> u64 {
    text.bytes().fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// These are the first outputs of the authors' code for the state {1, 2, 3, 4}.
    #[test]
    fn reference_outputs() {
        let mut rng = Rng([1, 2, 3, 4]);
        let expected = [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386];
        assert_eq!(std::array::from_fn(|_| rng.bits()), expected);
    }

    #[test]
    fn streams_are_repeatable_and_independent() {
        let draw = |seed, name| {
            let mut rng = Rng::stream(seed, name);
            (0..4_096).map(|_| rng.bits()).collect::<Vec<_>>()
        };
        let a = draw(7, "link a/loss");
        assert_eq!(a, draw(7, "link a/loss"));
        for other in [draw(7, "link b/loss"), draw(7, "link a/jitter"), draw(8, "link a/loss")] {
            // Independent bits differ in half of the positions: 131,072 of 262,144, sigma 256.
            let differing: u32 = a.iter().zip(&other).map(|(x, y)| (x ^ y).count_ones()).sum();
            assert!(differing.abs_diff(131_072) < 4 * 256, "{differing}");
        }
    }

    #[test]
    fn a_component_s_streams_are_those_of_its_name() {
        assert_eq!(RngSeed::new(7, "link a").stream("loss"), Rng::stream(7, "link a/loss"));
    }

    #[test]
    fn below_is_uniform_and_chance_is_fair() {
        let mut rng = Rng::new(3);
        let mut seen = [0u32; 6];
        (0..60_000).for_each(|_| seen[rng.below(6) as usize] += 1);
        assert!(seen.iter().all(|&n| n.abs_diff(10_000) < 4 * 92), "{seen:?}");
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
        let hits = (0..100_000).filter(|_| rng.chance(0.1)).count();
        assert!(hits.abs_diff(10_000) < 4 * 95, "{hits}");
        let before = rng.clone();
        assert!(rng.chance(1.0) && !rng.chance(0.0) && !rng.chance(f64::NAN));
        assert_eq!(rng, before, "a certainty draws nothing");
        assert!((0..1_000).map(|_| rng.unit()).all(|u| (0.0..1.0).contains(&u)));
    }
}
