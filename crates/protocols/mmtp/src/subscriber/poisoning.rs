//! Who sent the wrong bytes of a block that came from several sources: kept until the right bytes tell.

use super::item::SourceId;
use crate::id::ChunksPerBlock;

/// A copy of a block that came from several sources and is wrong.
pub(super) struct RejectedBlock {
    pub(super) bytes: Vec<u8>,
    pub(super) from: [SourceId; 64],
    pub(super) cut: ChunksPerBlock,
}

/// Compares a rejected copy with the verified bytes, chunk by chunk, and names who sent what differs.
pub(super) fn find_culprits(good: &[u8], copy: &RejectedBlock, mut culprit: impl FnMut(SourceId)) {
    let len = copy.cut.chunk_bytes();
    let mut named = Vec::new();
    for ((good, bad), source) in good.chunks(len).zip(copy.bytes.chunks(len)).zip(&copy.from) {
        if good != bad && !named.contains(source) {
            named.push(*source);
            culprit(*source);
        }
    }
}
