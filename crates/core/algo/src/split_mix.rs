//! Pseudorandom numbers from a seed: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
//! generators", OOPSLA 2014). Not for secrets.

/// A generator of pseudorandom numbers. The field is the seed at first, and then the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// Returns the next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number in `0..n`; 0 if `n` is 0. `n` should be far below 2⁶⁴: a larger one makes the lower
    /// numbers more likely.
    pub const fn below(&mut self, n: u64) -> u64 {
        match self.bits().checked_rem(n) {
            Some(rest) => rest,
            None => 0,
        }
    }

    /// Returns a position in a list of `n` elements.
    pub const fn index(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }

    /// Returns a number x with 0 ≤ x < 1.
    #[cfg(test)]
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of the reference code (<https://prng.di.unimi.it/splitmix64.c>) for 1234567.
    #[test]
    fn reference_outputs() {
        let mut rng = SplitMix64(1_234_567);
        assert_eq!(rng.bits(), 6_457_827_717_110_365_317);
        assert_eq!(rng.bits(), 3_203_168_211_198_807_973);
        assert_eq!(rng.below(0), 0);
        assert!((0..100).all(|_| rng.index(3) < 3));
    }
}
