//! FNV-1a, 64 bits: of what happened in a run, of what decides one. `build.rs` has this file too. (The random
//! streams of `anabranch_sim::Rng` hash their names by themselves, for `sim` knows nothing of this crate.)

/// The hash of what it was given so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(pub u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Takes `bytes` in.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3));
    }

    /// The digest of `bytes`.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut digest = Self::default();
        digest.update(bytes);
        digest
    }
}
