//! Computes FNV-1a hashes, 64 bits: of the events of a run, and of the inputs that decide one. `build.rs`
//! includes this file too. (The random streams of `anabranch_sim::Rng` hash their names by themselves,
//! because `sim` does not depend on this crate.)

/// The hash of all bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(pub u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Adds `bytes` to the hash.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3));
    }

    /// Returns the digest of `bytes`.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut digest = Self::default();
        digest.update(bytes);
        digest
    }
}
