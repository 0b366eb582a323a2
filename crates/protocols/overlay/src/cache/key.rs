//! The key of a chunk in a cache.

use anabranch_mmtp::{ChunksPerBlock, ContentId};

/// The key of a chunk: its content, its cut and its number under that cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChunkKey {
    pub(super) content: ContentId,
    pub(super) cut: ChunksPerBlock,
    pub(super) chunk: u64,
}
