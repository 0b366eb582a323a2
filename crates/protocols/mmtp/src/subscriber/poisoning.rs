//! Finds out who sent the wrong bytes of a block that came from several sources. Wrong copies are kept until
//! the right bytes arrive.

use super::item::SourceId;
use crate::id::ChunksPerBlock;

/// A wrong copy of a block that came from several sources.
pub(super) struct RejectedBlock {
    pub(super) bytes: Vec<u8>,
    pub(super) from: [SourceId; 64],
    pub(super) cut: ChunksPerBlock,
}

/// Compares a rejected copy with the verified bytes, chunk by chunk. Calls `culprit` for each source of a
/// chunk that differs.
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
