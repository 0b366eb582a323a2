//! Makes random contents: bytes that a seed decides, with their hash tree.

use std::sync::Arc;

use anabranch_mmtp::id::{BLOCK_BYTES, ContentId};
use anabranch_mmtp::publisher::{ContentInfo, ContentStore};
use anabranch_mmtp::tree::{self, Outboard};
use anabranch_sim::Rng;

/// A content in memory. A long content repeats a pattern of whole blocks, so that an experiment with
/// gigabytes needs only megabytes.
#[derive(Clone, Debug)]
pub struct Content {
    pattern: Arc<[u8]>,
    outboard: Arc<Outboard>,
    name: String,
}

impl Content {
    /// Creates a content of `length` bytes that `seed` decides.
    #[must_use]
    pub fn random(seed: u64, length: usize) -> Self {
        let mut bytes = vec![0; length];
        fill(&mut Rng::stream(seed, "content"), &mut bytes);
        Self::of(&format!("random-{seed}-{length}"), &bytes)
    }

    /// Creates a content of these bytes with this name.
    #[must_use]
    pub fn of(name: &str, bytes: &[u8]) -> Self {
        Self { outboard: Arc::new(Outboard::of_bytes(bytes)), pattern: bytes.into(), name: name.into() }
    }

    /// Creates a content of `blocks` whole blocks of 16 KiB, which repeat `pattern_blocks` blocks that
    /// `seed` decides.
    ///
    /// # Panics
    /// If `blocks` is less than two, or `pattern_blocks` is zero.
    #[must_use]
    pub fn repeating(seed: u64, pattern_blocks: usize, blocks: u64) -> Self {
        assert!(pattern_blocks > 0 && blocks >= 2, "a pattern, and at least two blocks of it");
        let mut pattern = vec![0; pattern_blocks * BLOCK_BYTES];
        fill(&mut Rng::stream(seed, "content"), &mut pattern);
        let block = |index: u64| {
            let at = (index % pattern_blocks as u64) as usize * BLOCK_BYTES;
            tree::block_cv(index, &pattern[at..at + BLOCK_BYTES])
        };
        let leaves = (0..blocks).map(block).collect();
        let outboard = Outboard::from_leaves(leaves, blocks * BLOCK_BYTES as u64);
        let outboard = Arc::new(outboard.expect("as many leaves as blocks, and at least two"));
        Self { pattern: pattern.into(), outboard, name: format!("repeating-{seed}-{blocks}") }
    }

    /// Returns the identifier: root and length.
    #[must_use]
    pub fn id(&self) -> ContentId {
        self.outboard.id()
    }

    /// Returns the hash tree.
    #[must_use]
    pub fn outboard(&self) -> &Outboard {
        &self.outboard
    }

    /// Returns the bytes of block `block`; empty beyond the end.
    #[must_use]
    pub fn block(&self, block: u64) -> &[u8] {
        let len = self.id().block_len(block);
        let blocks = (self.pattern.len() as u64).div_ceil(BLOCK_BYTES as u64).max(1);
        let at = (block % blocks) as usize * BLOCK_BYTES;
        self.pattern.get(at..at + len).unwrap_or(&[])
    }
}

/// The contents that a source offers.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(pub Vec<Content>);

impl MemoryStore {
    /// Returns the content with this identifier, if the store has it.
    #[must_use]
    pub fn find(&self, id: &ContentId) -> Option<&Content> {
        self.0.iter().find(|content| content.id() == *id)
    }
}

impl ContentStore for MemoryStore {
    fn info(&self, root: &[u8; 32]) -> Option<ContentInfo<'_>> {
        let content = self.0.iter().find(|content| content.id().root == *root)?;
        Some(ContentInfo { id: content.id(), name: content.name.as_bytes(), collection: false })
    }
}

/// Fills `out` with random bytes.
pub(crate) fn fill(rng: &mut Rng, out: &mut [u8]) {
    for eight in out.chunks_mut(8) {
        let bits = rng.bits().to_le_bytes();
        eight.copy_from_slice(&bits[..eight.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeating_content_is_what_its_bytes_are() {
        let content = Content::repeating(7, 3, 130);
        let bytes: Vec<u8> = (0..130).flat_map(|g| content.block(g).to_vec()).collect();
        assert_eq!(bytes.len(), 130 * BLOCK_BYTES);
        assert_eq!(content.id(), ContentId::of(&bytes));
        assert_eq!(content.block(130), b"");
        assert_eq!(*content.outboard(), Outboard::of_bytes(&bytes));
    }

    #[test]
    fn a_random_content_ends_where_it_should() {
        let content = Content::random(1, BLOCK_BYTES + 1);
        assert_eq!(
            (content.block(0).len(), content.block(1).len(), content.block(2).len()),
            (BLOCK_BYTES, 1, 0)
        );
        assert_eq!(Content::random(1, 100).id(), Content::random(1, 100).id());
        assert_ne!(Content::random(1, 100).id(), Content::random(2, 100).id());
    }
}
