//! Request tags: the random number in a request that its answers must echo.
//!
//! A tag is 64 bits of BLAKE3's output stream under a secret seed. An attacker who has not seen a request
//! cannot answer it. The same seed gives the same run.

/// A stream of tags.
pub(super) struct RequestTags {
    stream: blake3::OutputReader,
    ready: [u8; 512],
    used: usize,
}

impl RequestTags {
    /// Creates the stream of tags of this seed.
    pub(super) fn new(seed: &[u8; 32]) -> Self {
        let stream = blake3::Hasher::new_keyed(seed).update(b"anabranch mmTP request tags").finalize_xof();
        Self { stream, ready: [0; 512], used: 512 }
    }

    /// Returns the next tag.
    pub(super) fn next(&mut self) -> u64 {
        if self.used == self.ready.len() {
            self.stream.fill(&mut self.ready);
            self.used = 0;
        }
        let tag = self.ready[self.used..].first_chunk::<8>().expect("the buffer is a multiple of 8 long");
        self.used += 8;
        u64::from_be_bytes(*tag)
    }
}
