//! What a chunk is kept by.

use anabranch_mmtp::{ChunksPerBlock, ContentId};

/// A chunk under a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChunkKey {
    pub(super) content: ContentId,
    pub(super) cut: ChunksPerBlock,
    pub(super) chunk: u64,
}
